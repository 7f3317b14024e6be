"""A Redis whose clock the test moves: the scripts are told the time instead of asking for it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cachegate.state_address import StateAddress
from cachegate.stores.redis_link import RedisLink, Run
from cachegate.stores.redis_scripts import Script


class TimedLink(RedisLink):
    """As `RedisLink`; only the expiry of keys is left to the server's own clock."""

    def __init__(self, address: StateAddress, server_ms: Callable[[], int], deadline_s: float = 5.0) -> None:
        super().__init__(address, deadline_s)
        self._server_ms = server_ms
        self.runs = 0
        """Scripts sent, which is what a request waits for."""

    async def run(self, run: Run) -> list[Any]:
        self.runs += 1
        return await super().run(self._told(run))

    async def run_all(self, runs: Sequence[Run], deadline_s: float) -> list[list[Any]]:
        return await super().run_all([self._told(run) for run in runs], deadline_s)

    def _told(self, run: Run) -> Run:
        seconds, ms = divmod(self._server_ms(), 1_000)
        told = run.script.text.replace("redis.call('TIME')", f"{{{seconds}, {ms * 1_000}}}")
        assert told != run.script.text
        return replace(run, script=Script(told))
