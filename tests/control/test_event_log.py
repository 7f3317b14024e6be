"""The log of a thread against a list that forgets nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.control import event_log
from cachegate.control.event_log import EventLog


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 8), st.integers(1, 60))
def test_what_is_after_a_place_is_everything_after_it_or_nothing_at_all(
    frames: list[bytes], entries_max: int, bytes_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_log, "ENTRIES_MAX", entries_max)
        patch.setattr(event_log, "BYTES_MAX", bytes_max)
        log, cursors = EventLog("log_a"), ["log_a.0"]
        for frame in frames:
            cursors.append(log.next_cursor)
            log.append(frame)
            assert log.cursor == cursors[-1]
    kept = [log.after(cursor) for cursor in cursors]
    for number, found in enumerate(kept):
        assert found in (None, frames[number:])
    lost = [found is None for found in kept]
    assert lost == sorted(lost, reverse=True), "whoever was told more lost no more"
    assert kept[-1] == []
    if frames:
        assert kept[-2] == frames[-1:], "the newest event is always kept"
        newest = frames[len(frames) - len(kept[lost.index(False)] or ()) :]
        assert len(newest) <= entries_max
        assert sum(map(len, newest)) <= bytes_max or len(newest) == 1


@pytest.mark.parametrize("cursor", ["", ".", "log_a", "log_a.", "log_a.2", "log_a.-1", "log_a.x", "log_b.0", "log_a.²"])
def test_a_place_of_no_such_log_is_not_understood(cursor: str) -> None:
    log = EventLog("log_a")
    log.append(b"one")
    assert log.after(cursor) is None
