"""Importing the SDK is cheap, and needs nothing that only a server needs."""

import subprocess
import sys

import pytest

from cachegate import sdk

SERVER_PARTS = ("aiohttp.web", "pydantic", "typer", "rich", "yaml", "msgspec", "blake3", "uvloop")


def modules_after(statement: str) -> set[str]:
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


def test_it_loads_no_part_of_a_server_and_no_other_room() -> None:
    loaded = modules_after("import cachegate.sdk")
    assert "cachegate.sdk.client" in loaded
    assert [name for name in SERVER_PARTS if name in loaded] == []
    ours = {name for name in loaded if name.startswith("cachegate.")}
    assert [name for name in ours if not name.startswith("cachegate.sdk")] == []


def test_the_package_alone_loads_nothing() -> None:
    loaded = modules_after("import cachegate")
    assert {name for name in loaded if name.startswith(("cachegate.", "aiohttp"))} == set()


def test_all_public_names_are_there_in_order() -> None:
    assert list(sdk.__all__) == sorted(sdk.__all__)
    assert [name for name in sdk.__all__ if not hasattr(sdk, name)] == []


@pytest.mark.parametrize("name", [name for name in sdk.__all__ if isinstance(getattr(sdk, name), type)])
def test_every_public_class_says_what_it_is(name: str) -> None:
    documented = getattr(sdk, name).__doc__ or ""
    assert not documented.startswith(f"{name}("), "a dataclass without a docstring shows its signature"
    assert documented
