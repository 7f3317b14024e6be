"""From a wish to serve to a supervisor; the processes are tested in tests/server/test_supervisor.py."""

import sys
from pathlib import Path

import pytest

from cachegate.supervised import own_program, status_lines

TOLD = {
    "address": "127.0.0.1:4283",
    "pid": 10,
    "version": "1.0",
    "uptimeSeconds": 3_700,
    "generation": 2,
    "upgrading": False,
    "workers": [
        {"pid": 11, "generation": 1, "version": "1.0", "phase": "leaving", "phaseSeconds": 75, "inFlight": 1},
        {"pid": 12, "generation": 2, "version": "", "phase": "starting", "phaseSeconds": 0, "inFlight": None},
    ],
}


def test_a_status_is_readable() -> None:
    assert status_lines(TOLD) == [
        "127.0.0.1:4283  serving  generation 2, up 1 h 1 min (supervisor 10, version 1.0)",
        "  worker 11  generation 1  leaving for 1 min 15 s  1 in flight  version 1.0",
        "  worker 12  generation 2  starting for 0 s  in flight unknown",
    ]
    assert "upgrading" in status_lines({**TOLD, "upgrading": True, "uptimeSeconds": 90_000})[0]
    assert "up 1 d 1 h" in status_lines({**TOLD, "uptimeSeconds": 90_000})[0]


def test_no_code_is_taken_from_the_folder_one_happens_to_be_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert own_program("cachegate") == (sys.executable, "-P", "-m", "cachegate")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert own_program("cachegate") == (sys.executable, "-m", "cachegate")
