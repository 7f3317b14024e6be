"""The code in docs/sdk.md runs as it stands."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from cachegate import sdk
from running_gateway import RunningGateway

TEXT = (Path(__file__).parent.parent.parent / "docs" / "sdk.md").read_text("utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
async def test_the_code_in_the_document_runs(gateway: RunningGateway, number: int) -> None:
    code = PROGRAMS[number].replace("http://127.0.0.1:4283", gateway.url)
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-c", code, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(program.communicate(), 60)
    assert (program.returncode, err.decode()) == (0, "")
    assert out or number == 1, "the second only shows what a stop would be"


def test_every_error_is_documented() -> None:
    assert [kind.__name__ for kind in sdk.CachegateError.__subclasses__() if f"`{kind.__name__}`" not in TEXT] == []


def test_every_method_of_a_chat_is_documented() -> None:
    names = [name for name in dir(sdk.HostedChat) if not name.startswith("_")]
    assert [name for name in names if f"chat.{name}" not in TEXT and f"`{name}`" not in TEXT] == ["model"]
