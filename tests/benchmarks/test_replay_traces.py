"""The replay of traces, on rows made up here: it must see a warm chat that is stopped, and a broken one that is not."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from benchmarks.replay_traces import CACHES, OPENING_TOKENS, Replay, main, read_rows

STATIC = 15_000
"""Tokens of tools and instructions in every made-up session."""
OPENING = STATIC + 100
"""What is shared with the request before when the client rewrote its opening."""
FIVE_MINUTES, ONE_HOUR, BROKEN = CACHES
REAL_TRACES = "CACHEGATE_TRACES"
"""Environment variable with the path of the real traces, which are no part of the repository."""


def row(t: float, tokens: int, shared: int, **more: Any) -> dict[str, Any]:
    fields = {"trace": "a", "agent": "main", "model": "m", "t": t, "api_s": 5.0, "in": tokens, "common_prev": shared}
    return {**fields, **more}


def file_of(folder: Path, rows: list[dict[str, Any]]) -> Path:
    meta = [
        {"id": name, "tool_tokens": STATIC - 3_000, "system_tokens": 3_000} for name in {row["trace"] for row in rows}
    ]
    (folder / "meta.json").write_text(json.dumps(meta), "utf-8")
    path = folder / "requests.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in rows).encode()))
    return path


RESUMED = [
    row(0, 200_000, 0),
    row(20, 202_000, OPENING),
    row(40, 204_000, 202_000),
    row(60, 206_000, 204_000),
]
"""The double-cold opening: a resumed chat is cold, its client rewrites the opening, and from there on it is warm."""
REWRITTEN = [row(20 * at, 200_000, STATIC + OPENING_TOKENS + 1) for at in range(4)]
"""The history is rewritten behind the opening at every request: nothing that an opening could excuse."""
COMPACTED = [row(0, 200_000, 0), row(20, 100_000, OPENING), row(40, 102_000, 100_000)]
"""As RESUMED, but the new opening came with a conversation of half the size."""


def replay(folder: Path, rows: list[dict[str, Any]], *, cache: Any = FIVE_MINUTES, opening_rule: bool = True) -> Replay:
    return Replay(cache, opening_rule).run(read_rows(file_of(folder, rows)))


def stops(replayed: Replay) -> list[tuple[int, bool, str]]:
    """(second, whether it was warm, reason) of each stop."""
    return [(stop.row.begin_ms // 1_000, stop.warm, stop.decision.reason.value) for stop in replayed.stops]


@pytest.mark.parametrize("cache", [FIVE_MINUTES, ONE_HOUR])
def test_a_double_cold_opening_is_stopped_only_without_the_rule_r15(tmp_path: Path, cache: Any) -> None:
    assert stops(replay(tmp_path, RESUMED, cache=cache, opening_rule=False)) == [(40, True, "measured")]
    assert stops(replay(tmp_path, RESUMED, cache=cache)) == []


@pytest.mark.parametrize("opening_rule", [False, True])
def test_a_cache_that_never_reads_stops_on_the_third_request_t1(tmp_path: Path, opening_rule: bool) -> None:
    same = [row(20 * at, 200_000, 0 if at == 0 else 200_000) for at in range(4)]
    replayed = replay(tmp_path, same, cache=BROKEN, opening_rule=opening_rule)
    assert stops(replayed) == [(40, False, "measured")]
    assert replayed.cold_run_max == 2


@pytest.mark.parametrize("opening_rule", [False, True])
def test_a_rewritten_history_stops_on_the_third_request(tmp_path: Path, opening_rule: bool) -> None:
    assert stops(replay(tmp_path, REWRITTEN, opening_rule=opening_rule)) == [(40, False, "measured")]


def test_a_shrunk_conversation_was_compacted_and_counts_r15(tmp_path: Path) -> None:
    assert stops(replay(tmp_path, COMPACTED)) == [(40, True, "measured")]
    barely = [row(0, 200_000, 0), row(20, 160_000, OPENING), row(40, 162_000, 160_000)]
    assert stops(replay(tmp_path, barely)) == []


def test_an_opening_that_changes_every_time_still_stops_r16(tmp_path: Path) -> None:
    assert stops(replay(tmp_path, [row(20 * at, 200_000, OPENING) for at in range(8)])) == [(120, False, "measured")]


@pytest.mark.parametrize(
    ("gap_s", "cold"), [(300, [0, 0, 1]), (301, [1, 0, 1]), (3_600, [1, 0, 1]), (3_601, [1, 1, 1])]
)
def test_a_cache_lives_from_the_end_of_the_request_before(tmp_path: Path, gap_s: int, cold: list[int]) -> None:
    rows = [row(0, 200_000, 0, api_s=900.0), row(900 + gap_s, 200_000, 200_000)]
    assert [replay(tmp_path, rows, cache=cache).chats["a", "main", "m"].cold_run for cache in CACHES] == cold


def test_conversations_are_apart_and_share_what_their_own_requests_share(tmp_path: Path) -> None:
    rows = [
        row(0, 200_000, 0),
        row(1, 100_000, STATIC, model="small"),
        row(2, 100_000, 0, agent="main/sa1"),
        row(20, 201_000, 150_000),
    ]
    read = read_rows(file_of(tmp_path, rows))
    assert [(row.key[1:], row.shared) for row in read] == [
        (("main", "m"), 0),
        (("main", "small"), 0),
        (("main/sa1", "m"), 0),
        (("main", "m"), STATIC),
    ]
    assert len(Replay(FIVE_MINUTES, opening_rule=True).run(read).chats) == 3


def test_requests_that_overlap_end_in_the_order_of_time(tmp_path: Path) -> None:
    overlapping = [row(20 * at, 200_000, STATIC + 9_000, api_s=100.0) for at in range(4)]
    replayed = replay(tmp_path, overlapping)
    assert stops(replayed) == []
    assert replayed.cold_run_max == 4
    assert replayed.chats["a", "main", "m"].entry.in_flight == 0
    unknown = [{**row, "api_s": None} for row in overlapping]
    assert stops(replay(tmp_path, unknown)) == [(40, False, "measured")]


def test_after_a_stop_the_budget_starts_anew_so_that_none_hides_the_next(tmp_path: Path) -> None:
    assert [at for at, _, _ in stops(replay(tmp_path, [row(20 * at, 200_000, STATIC + 9_000) for at in range(9)]))] == [
        40, 80, 120, 160,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        (RESUMED, 0),
        ([*REWRITTEN[:2], row(40, 204_000, 200_000)], 1),
        ([row(20 * at, 200_000, STATIC + 9_000) for at in range(5)], 1),
    ],
    ids=["nothing stopped", "one stop, warm", "two stops, cold"],
)
def test_the_check_fails_when_working_chats_are_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: list[dict[str, Any]], code: int
) -> None:
    arguments = ["--traces", str(file_of(tmp_path, rows))]
    assert main([*arguments, "--check"]) == code
    assert ("MISSED" in capsys.readouterr().out) is bool(code)
    assert main(arguments) == 0


def test_the_check_fails_when_a_broken_cache_is_not_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row(20 * at, 200_000, 200_000, api_s=900.0) for at in range(8)]
    assert main(["--traces", str(file_of(tmp_path, rows)), "--check"]) == 1
    assert "MISSED: broken cache" in capsys.readouterr().out


def test_the_table_names_every_stop_and_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--traces", str(file_of(tmp_path, [*RESUMED, *({**row, "trace": "b"} for row in COMPACTED)]))]
    main([*arguments, "--every-stop"])
    out = capsys.readouterr().out
    assert "2 sessions, 2 conversations, 7 requests" in out
    assert "5 minutes   no                  2         2      2              2" in out
    assert "5 minutes   yes                 1         1      1              2" in out
    assert "  b main m at 40 s: 102,000 tokens, would have read 100,000 (warm); measured, 2" in out
    main(arguments)
    assert "without the opening rule" not in capsys.readouterr().out


def test_traces_that_cannot_be_read_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--traces", str(tmp_path / "none.jsonl.gz"), "--check"]) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.skipif(REAL_TRACES not in os.environ, reason=f"{REAL_TRACES} names no file of real traces")
def test_the_real_traces_are_served() -> None:
    assert main(["--traces", os.environ[REAL_TRACES], "--check"]) == 0
