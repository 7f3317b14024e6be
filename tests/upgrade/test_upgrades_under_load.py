"""Upgrades under load lose nothing. Two variables say how much of both; the full run is `benchmarks/upgrades.py`."""

import os
import time
from pathlib import Path

import pytest
from benchmarks.upgrade_load import CONFIG, Plan, under_load

from supervised_program import supervised_program

REQUESTS = int(os.environ.get("CACHEGATE_TEST_UPGRADE_REQUESTS", "2000"))
UPGRADES = int(os.environ.get("CACHEGATE_TEST_UPGRADES", "3"))


@pytest.mark.skipif(os.name != "posix", reason="sockets are inherited on POSIX only")
async def test_no_request_fails_no_stream_breaks_and_no_stop_is_forgotten(tmp_path: Path) -> None:
    async with supervised_program(tmp_path, CONFIG, "--workers", "2", "--quiet") as gateway:

        async def upgrade() -> float:
            started_s = time.monotonic()
            done, words = await gateway.upgrade()
            assert done, words
            return time.monotonic() - started_s

        outcome = await under_load(gateway.port, Plan(REQUESTS, UPGRADES), upgrade)
        assert (outcome.failed, outcome.problems) == (0, [])
        assert outcome.requests >= REQUESTS
        assert {kind for kind, count in outcome.answered.items() if count} == {
            "fresh", "kept", "stopped", "synthetic/slow", "long/slow",
        }  # fmt: skip
        assert outcome.told_to_close > 0, "the old workers told their connections to go"
        assert outcome.stopped_late == 0
        assert (await gateway.status())["generation"] == len(outcome.upgrades_s) + 1
