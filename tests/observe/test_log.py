"""One line per request that nothing from outside can break or forge."""

import dataclasses
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.guard.usage import Usage
from cachegate.observe.log import LOGGER, RequestLog, _json_line, _text_line, configure
from observe.test_diagnostics import RECORD


def test_a_line_for_people_says_what_happened() -> None:
    line = _text_line(RECORD)
    for part in ("200", "/v1/messages", "anthropic/claude-x", "completed", "12 ms", "input 100 cached 40"):
        assert part in line
    assert "guard allowed (miss, count 1, history_changed)" in line


def test_a_rebuilt_session_is_told() -> None:
    rebuilt = dataclasses.replace(RECORD, rebuilt="history_diverged")
    assert "session rebuilt (history_diverged)" in _text_line(rebuilt)
    assert json.loads(_json_line(rebuilt))["rebuilt"] == "history_diverged"
    assert "rebuilt" not in _text_line(RECORD)


def test_unknown_is_shown_as_unknown() -> None:
    assert "cached ?" in _text_line(dataclasses.replace(RECORD, usage=Usage(100)))
    assert json.loads(_json_line(dataclasses.replace(RECORD, usage=Usage(100))))["cachedTokens"] is None


def test_a_json_line_holds_the_same() -> None:
    line = json.loads(_json_line(RECORD))
    assert (line["event"], line["status"], line["inputTokens"], line["guard"]["count"]) == ("request", 200, 100, 1)
    assert json.loads(_json_line(dataclasses.replace(RECORD, guard=None)))["guard"] is None


@given(st.text(), st.text())
def test_no_model_and_no_error_code_can_forge_a_line(model: str, detail: str) -> None:
    record = dataclasses.replace(RECORD, model=model, detail=detail)
    for line in (_text_line(record), _json_line(record)):
        assert len(line.splitlines()) == 1
        assert line.isprintable()
        assert len(line) < 2_000
    json.loads(_json_line(record))


@pytest.mark.parametrize("as_json", [True, False])
def test_the_log_goes_to_standard_error_one_line_each(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    configure(as_json=as_json, quiet=False)
    try:
        RequestLog(as_json=as_json)(RECORD)
        LOGGER.warning("something\nodd")
        out, err = capsys.readouterr()
    finally:
        LOGGER.handlers = []
        LOGGER.propagate = True
    assert out == ""
    if as_json:
        first, second = map(json.loads, err.splitlines())
        assert (first["event"], second["event"], second["level"]) == ("request", "log", "warning")


def test_quiet_says_only_what_went_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    configure(as_json=False, quiet=True)
    try:
        RequestLog(as_json=False)(RECORD)
        LOGGER.error("broken")
    finally:
        LOGGER.handlers = []
        LOGGER.propagate = True
        LOGGER.setLevel(logging.NOTSET)
    assert capsys.readouterr().err == "broken\n"
