"""The laws of the rooms, held by reading the source: purity, direction of imports, sizes, names, a test per file."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "cachegate"
MODULES = sorted(path for path in SOURCE.rglob("*.py"))
NAMES = [str(path.relative_to(SOURCE)) for path in MODULES]

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 6

MAY_IMPORT: dict[str, set[str]] = {
    # room: the rooms and top modules it may import, besides itself
    "guard": set(),
    "wire": {"guard.usage", "guard.fingerprint", "errors"},
    "stores": {"guard", "state_address"},
    "observe": {"guard"},
    "providers": {"guard.usage", "wire", "errors"},
    "errors": set(),
    "routing": {"providers", "wire", "errors"},
    "provider_configs": {"providers"},
    "state_address": set(),
    "config": {"guard", "providers", "errors", "provider_configs", "state_address"},
    "launch": {"providers"},
    "runtime_directory": {"guard"},
    "road": {"guard", "wire", "stores", "providers", "observe", "routing", "errors"},
    "auxiliary": {"guard", "wire", "providers", "observe", "road"},
    "control": {"guard", "wire", "providers.headers", "observe", "errors", "road"},
    "assembly": {
        "guard",
        "wire",
        "stores",
        "providers",
        "observe",
        "routing",
        "errors",
        "config",
        "provider_configs",
        "road",
        "runtime_directory",
    },
    "server": {
        "guard",
        "wire",
        "providers",
        "observe",
        "errors",
        "config",
        "road",
        "auxiliary",
        "control",
        "runtime_directory",
    },
    "serving": {"observe", "errors", "config", "assembly", "server", "runtime_directory"},
    "supervised": {"config", "server", "runtime_directory"},
    "service": set(),
    "demo": {"observe", "config", "provider_configs", "assembly", "server"},
    "cli": {
        "observe",
        "config",
        "provider_configs",
        "assembly",
        "server",
        "errors",
        "launch",
        "runtime_directory",
        "serving",
        "supervised",
        "service",
        "demo",
        "providers",
        "wire.usage_report",
    },
    "sdk": set(),
    "__main__": {"cli"},
    "__init__": set(),
}
PURE = ("guard", "wire")
PURE_FILES = {
    "control/rpc.py", "control/params.py", "control/thread.py", "control/event_log.py", "control/turn_request.py",
    "control/said.py", "control/stored.py", "server/supervision.py", "server/supervision_values.py",
}  # fmt: skip
"""Files that keep the law of the pure rooms, as the law of their own room says."""
IMPURE_IMPORTS = {
    "asyncio", "time", "datetime", "os", "io", "socket", "random", "secrets", "logging", "pathlib", "subprocess",
    "threading", "sys", "aiohttp", "urllib", "sqlite3",
}  # fmt: skip
GUARD_FORBIDDEN_WORDS = ("anthropic", "openai", "claude", "codex", "messages api", "responses api", "sse", "http")
GUARD_NOT_IMPORTED = {"json", "msgspec", "orjson", "pydantic"}
SDK_IMPORTS = {"aiohttp", "yarl"}
"""What the SDK needs besides the standard library: a program that uses it need not have what a server needs."""
FORBIDDEN_MODULE_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}

TESTED_ELSEWHERE = {
    # a seam is tested by its contract suite, on every implementation
    "stores/base.py": "contract/test_stores.py",
    "providers/base.py": "contract/test_providers.py",
    "wire/codec.py": "contract/test_codecs.py",
    "wire/hub.py": "contract/test_codecs.py",
    "server/supervision_values.py": "server/test_supervision.py",
    "__main__.py": "test_cli.py",
    "__init__.py": "test_docs.py",
    # its room's __init__ also holds a library's door: the public names, whose test imports them alone
    "sdk/__init__.py": "sdk/test_sdk.py",
}
OPTIONAL_IMPORTS = {"anthropic", "openai", "uvloop"}
"""Extras, and what does not exist on every system: the only imports that may stand inside a function."""

OPTIONAL_ROOMS = ("cachegate.providers.copilot.", "cachegate.stores.redis")
"""Rooms of ours that need an extra."""


def tree_of(name: str) -> ast.Module:
    return ast.parse((SOURCE / name).read_text("utf-8"))


def room_of(name: str) -> str:
    return name.split("/", maxsplit=1)[0].removesuffix(".py")


def imports_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom() if node.module is not None and node.level == 0:
                if node.module == "cachegate":
                    yield from (f"cachegate.{alias.name}" for alias in node.names)
                else:
                    yield node.module
            case ast.ImportFrom():
                pytest.fail("imports are absolute")


def functions_of(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("name", NAMES)
def test_imports_run_one_way(name: str) -> None:
    room = room_of(name)
    allowed = MAY_IMPORT[room] | {room, "__version__"}
    ours = (
        module.removeprefix("cachegate.") for module in imports_of(tree_of(name)) if module.startswith("cachegate.")
    )
    wrong = [module for module in ours if not any(module == may or module.startswith(f"{may}.") for may in allowed)]
    assert wrong == [], f"{room} may import {sorted(allowed)}"


@pytest.mark.parametrize("name", [name for name in NAMES if room_of(name) in PURE or name in PURE_FILES])
def test_pure_rooms_do_no_io_and_read_no_clock(name: str) -> None:
    tree = tree_of(name)
    assert not {module.split(".")[0] for module in imports_of(tree)} & IMPURE_IMPORTS
    awaits = [node for node in ast.walk(tree) if isinstance(node, ast.Await | ast.AsyncFunctionDef | ast.AsyncFor)]
    assert awaits == []
    calls = [node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    assert not {"open", "print", "input", "exec", "eval"} & set(calls)


@pytest.mark.parametrize("name", [name for name in NAMES if room_of(name) == "guard"])
def test_the_guard_knows_no_json_no_provider_and_no_protocol(name: str) -> None:
    tree = tree_of(name)
    assert not {module.split(".")[0] for module in imports_of(tree)} & GUARD_NOT_IMPORTED
    text = (SOURCE / name).read_text("utf-8").lower()
    assert [word for word in GUARD_FORBIDDEN_WORDS if re.search(rf"\b{word}\b", text)] == []


@pytest.mark.parametrize("name", [name for name in NAMES if room_of(name) == "sdk"])
def test_the_sdk_imports_the_standard_library_and_a_http_client_only(name: str) -> None:
    imported = {module.split(".")[0] for module in imports_of(tree_of(name))}
    assert imported - sys.stdlib_module_names - SDK_IMPORTS - {"cachegate"} == set()


@pytest.mark.parametrize("room", [room for room in MAY_IMPORT if (SOURCE / room).is_dir()])
def test_the_law_of_a_room_stands_in_its_first_lines(room: str) -> None:
    docstring = ast.get_docstring(tree_of(f"{room}/__init__.py")) or ""
    assert "Law of this room:" in docstring


@pytest.mark.parametrize("name", NAMES)
def test_modules_and_functions_stay_small(name: str) -> None:
    tree = tree_of(name)
    assert ast.get_docstring(tree), "a module says in its first lines what it is for"
    assert len((SOURCE / name).read_text("utf-8").splitlines()) <= MODULE_LINES_MAX
    for function in functions_of(tree):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        assert lines <= FUNCTION_LINES_MAX, f"{function.name} has {lines} lines"
        named = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        parameters = [argument for argument in named if argument.arg not in {"self", "cls"}]
        assert len(parameters) <= PARAMETERS_MAX, f"{function.name} has {len(parameters)} parameters"


@pytest.mark.parametrize("name", NAMES)
def test_no_import_hides_in_a_function_but_optional_ones(name: str) -> None:
    for function in functions_of(tree_of(name)):
        imported = {module for module in imports_of(function) if not module.startswith(OPTIONAL_ROOMS)}
        assert {module.split(".")[0] for module in imported} <= OPTIONAL_IMPORTS, function.name


def test_there_is_one_catch_all_at_the_roads_border() -> None:
    found = [
        name
        for name in NAMES
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"}))
    ]
    assert found == ["road.py"]


@pytest.mark.parametrize("name", NAMES)
def test_every_file_has_its_test_and_a_name_that_says_something(name: str) -> None:
    path = Path(name)
    assert path.stem not in FORBIDDEN_MODULE_NAMES
    if path.name == "__init__.py" and name not in TESTED_ELSEWHERE:
        assert len(tree_of(name).body) == 1, "a room's __init__ holds its law and nothing else"
        return
    expected = TESTED_ELSEWHERE.get(name, str(path.with_name(f"test_{path.name}")))
    assert (ROOT / "tests" / expected).is_file(), f"tests/{expected} is missing"


def test_json_field_names_of_the_protocols_stand_in_wire_only() -> None:
    """And in the SDK: it is a client, imports nothing of the gateway, and knows the protocol as any client does."""
    fields = {"cache_read_input_tokens", "cached_tokens", "input_tokens_details", "stop_reason", "prompt_cache_key"}
    found = [
        name
        for name in NAMES
        if room_of(name) not in {"wire", "sdk"}
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.Constant) and node.value in fields
    ]
    assert found == []


def test_what_crosses_a_border_is_frozen_or_says_that_it_changes() -> None:
    """Mutable dataclasses are few, and each is one that a single owner changes."""
    changing = [
        f"{name}:{node.name}"
        for name in NAMES
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.ClassDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Name)
        and decorator.func.id == "dataclass"
        and "frozen" not in {keyword.arg for keyword in decorator.keywords}
    ]
    assert sorted(changing) == [
        "road.py:Journey",
        "server/app.py:App",
        "server/exchange.py:Lifecycle",
        "server/supervisor.py:Process",
        "wire/facts.py:Content",
    ]


def test_nothing_of_ours_names_a_package_host_or_a_foreign_gateway() -> None:
    words = ("lite" + "llm", "npm" + "js", "pypi" + ".org", "python" + "hosted")
    files = [
        *MODULES,
        *(path for path in (ROOT / "scripts").rglob("*") if path.is_file() and path.suffix != ".pyc"),
        *(ROOT / "requirements").iterdir(),
        ROOT / "pyproject.toml",
    ]
    assert [(path.name, word) for path in files for word in words if word in path.read_text("utf-8").lower()] == []
