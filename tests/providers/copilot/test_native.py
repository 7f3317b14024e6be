"""The seam has two sides here: the SDK's, and the one in memory that the other tests are played on."""

import inspect

import pytest
from copilot.generated.session_events import SessionEventType

from cachegate.providers.copilot.native import EXITED, NativeSession, Opening, Runtime
from cachegate.providers.copilot.runtime import SdkRuntime, SdkSession
from cachegate.wire.copilot.setup import Setup
from copilot_runtime import ScriptedRuntime, ScriptedSession


def methods(seam: type) -> list[str]:
    return [name for name, member in vars(seam).items() if inspect.isfunction(member) and not name.startswith("_")]


@pytest.mark.parametrize(
    ("seam", "side"),
    [
        (NativeSession, SdkSession),
        (NativeSession, ScriptedSession),
        (Runtime, SdkRuntime),
        (Runtime, ScriptedRuntime),
    ],
)
def test_both_sides_are_called_alike(seam: type, side: type) -> None:
    assert methods(seam)
    for name in methods(seam):
        asked, given = getattr(seam, name), getattr(side, name)
        assert inspect.iscoroutinefunction(given) == inspect.iscoroutinefunction(asked), name
        assert list(inspect.signature(given).parameters) == list(inspect.signature(asked).parameters), name
        kinds = [each.kind for each in inspect.signature(asked).parameters.values()]
        assert [each.kind for each in inspect.signature(given).parameters.values()] == kinds, name


def test_no_event_of_the_runtimes_has_the_name_of_ours() -> None:
    assert EXITED["type"] not in {each.value for each in SessionEventType}
    assert "session.idle" in {each.value for each in SessionEventType}


def test_an_opening_does_not_show_what_was_said() -> None:
    assert "secret" not in repr(Opening("s1", Setup("m", "", (), None, None), b"secret"))
