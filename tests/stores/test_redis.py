"""Replicas on one real server: what they share, and what a server does to them that fails, forgets or changes."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError as ConnectionLost

from cachegate.guard.budget import Entry
from cachegate.guard.machine import Ask, Decision, Ending, Settled, admit, settle
from cachegate.guard.policy import Policy
from cachegate.guard.usage import Usage
from cachegate.state_address import parse_state_address
from cachegate.stores.base import StateDown, StoreFailed
from cachegate.stores.fallback import Down, FallbackStore, Pauses
from cachegate.stores.redis import LEASE_MS, PREFIX, RedisStore, agreed_secret
from contract.store_subjects import COLD, WARM, Clock, fate, lease
from redis_servers import KINDS, RedisServer, needs_redis, redis_server
from timed_redis import TimedLink

POLICY = Policy()
HOURS_MS = 3 * 3_600_000
PAUSES = Pauses(failures_max=3, pause_ms=1_000, pause_ms_max=30_000)


@dataclass(slots=True)
class Replica:
    """A gateway's store, on a machine whose clock shows something else."""

    server: RedisServer
    time: Clock
    ahead_ms: int
    down: Down = Down.LOCAL
    link: TimedLink = field(init=False)
    store: FallbackStore = field(init=False)
    requests: int = 0

    def __post_init__(self) -> None:
        self.link = TimedLink(parse_state_address(self.server.url), self.time, deadline_s=0.2)
        shared = RedisStore(self.link, POLICY, self.now_ms, deadline_s=0.2)
        self.store = FallbackStore(shared, POLICY, self.now_ms, PAUSES, self.down)

    def now_ms(self) -> int:
        return self.time.ms + self.ahead_ms

    async def begin(self, key: str = "k") -> tuple[Decision, str]:
        self.requests += 1
        name = f"{id(self)}-{self.requests}"
        ask = Ask(800_000)
        return await self.store.apply(key, lambda it: admit(it, ask, self.now_ms(), POLICY), lease(name)), name

    async def end(self, name: str, usage: Usage = COLD, key: str = "k") -> Settled:
        result = replace(fate(usage, Ending.COMPLETED), started_ms=self.now_ms())
        return await self.store.apply(key, lambda it: settle(it, result, self.now_ms(), POLICY), lease(name, usage))

    async def runs(self, usage: Usage = COLD, key: str = "k") -> bool:
        decision, name = await self.begin(key)
        if decision.runs:
            await self.end(name, usage, key)
        return decision.runs

    async def entry(self, key: str = "k") -> Entry:
        return await self.store.apply(key, lambda it: (it, it))


@pytest.fixture(params=KINDS)
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with redis_server(str(request.param), tmp_path) as started:
        yield started


@pytest.fixture
async def replicas(server: RedisServer) -> AsyncIterator[list[Replica]]:
    """Three, of which two have clocks that are hours off."""
    time = Clock(1_800_000_000_000)
    made = [Replica(server, time, ahead_ms) for ahead_ms in (0, HOURS_MS, -time.ms + 5)]
    yield made
    server.thaw()
    for replica in made:
        await replica.store.close()


async def test_the_third_cold_request_stops_wherever_it_lands(replicas: list[Replica]) -> None:
    for first in range(3):
        order = [replicas[(first + turn) % 3] for turn in range(4)]
        assert [await replica.runs(key=f"k{first}") for replica in order] == [True, True, False, False]


async def test_silence_is_measured_by_one_clock_r12_r13(replicas: list[Replica]) -> None:
    one, other, third = replicas
    assert [await one.runs(), await other.runs(), await third.runs()] == [True, True, False]
    one.time.ms += POLICY.idle_ms - 1
    assert not await other.runs(), "and the attempt was activity"
    one.time.ms += POLICY.idle_ms
    decision, name = await third.begin()
    assert decision.runs
    settled = await third.end(name)
    assert settled.count == 1
    for _ in range(8):
        one.time.ms += POLICY.idle_ms // 8
        await third.store._tend()
    held = (await one.entry()).settled_ms
    assert one.now_ms() - held == POLICY.idle_ms // 8 * 8, "the gap is right on every clock"


async def test_a_request_in_flight_keeps_its_history_as_long_as_its_replica_lives_r13(replicas: list[Replica]) -> None:
    one, other, _ = replicas
    _, name = await one.begin()
    await one.end(name)
    await one.begin()
    for _ in range(20):
        one.time.ms += LEASE_MS // 2
        await one.store._tend()
    assert ((await other.entry()).in_flight, (await other.entry()).count) == (1, 1)
    decision, _ = await other.begin()
    assert decision.count == 1, "ten minutes, and never idle"


async def test_a_replica_that_died_leaves_nothing_and_what_it_observed_counts(replicas: list[Replica]) -> None:
    one, other, _ = replicas
    await one.begin()
    assert (await other.entry()).in_flight == 1
    await one.store._tend()  # what was observed goes along
    one.time.ms += LEASE_MS
    entry = await other.entry()
    assert (entry.in_flight, entry.count) == (0, 1)
    assert (await other.entry()).count == 1, "once"
    assert b"f:" not in b"".join(await other.link._client.hkeys(f"{PREFIX}{{k}}"))


async def test_a_frozen_server_costs_three_requests_a_wait_and_the_rest_nothing(replicas: list[Replica]) -> None:
    one, other, _ = replicas
    assert await one.runs(WARM)
    one.server.freeze()
    before = one.link.runs
    told = [await one.runs(key="new") for _ in range(6)]
    assert told == [True, True, False, False, False, False], "the guard goes on with what this replica knows"
    assert one.link.runs - before == 3, "after three failures nobody waits"
    assert one.store.condition().degraded
    assert await other.runs(key="new"), "each replica by itself"
    one.server.thaw()
    one.time.ms += PAUSES.pause_ms
    assert not await one.runs(key="new")
    assert not one.store.condition().degraded
    other.time.ms += PAUSES.pause_ms
    assert not await other.runs(key="new"), "never forget a stop"


async def test_what_was_counted_meanwhile_comes_together_afterwards(replicas: list[Replica]) -> None:
    one, other, third = replicas
    one.server.freeze()
    for replica in (one, other):
        assert [await replica.runs(), await replica.runs()] == [True, True]
    one.server.thaw()
    one.time.ms += PAUSES.pause_ms_max
    assert not await one.runs()
    assert not await third.runs()
    assert (await other.entry()).in_flight == 0


async def test_an_emptied_server_gets_back_what_the_replicas_remember(replicas: list[Replica]) -> None:
    one, other, third = replicas
    assert [await one.runs(), await other.runs()] == [True, True]
    await one.server.ask("FLUSHALL")
    assert not await other.runs(), "as it saw it last"
    assert not await third.runs()
    assert not one.store.condition().degraded


async def test_a_server_that_started_again_is_used_again(replicas: list[Replica]) -> None:
    one, other, third = replicas
    assert [await one.runs(), await other.runs()] == [True, True]
    one.server.kill()
    assert not await other.runs()
    one.server.start_again()
    await one.server.until_ready()
    one.time.ms += PAUSES.pause_ms_max
    assert not await other.runs()
    assert not await third.runs()
    assert not other.store.condition().degraded


async def test_scripts_that_were_flushed_are_sent_again(replicas: list[Replica]) -> None:
    one, other, _ = replicas
    assert await one.runs()
    await one.server.ask("SCRIPT", "FLUSH")
    assert await other.runs()
    assert not await one.runs()
    assert one.store.condition().failures == 0


async def test_a_server_out_of_memory_fails_no_request(replicas: list[Replica]) -> None:
    one, _, _ = replicas
    assert await one.runs()
    await one.server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    await one.server.ask("CONFIG", "SET", "maxmemory", 1)
    assert [await one.runs(), await one.runs()] == [True, False]
    assert one.store.condition().degraded
    await one.server.ask("CONFIG", "SET", "maxmemory", 0)
    one.time.ms += PAUSES.pause_ms_max
    assert not await one.runs()
    assert not one.store.condition().degraded


@needs_redis
async def test_a_failover_forgets_no_stop_that_a_replica_saw(tmp_path: Path) -> None:
    time = Clock(1_800_000_000_000)
    async with redis_server("redis", tmp_path) as primary, redis_server("redis", tmp_path) as promoted:
        one = Replica(primary, time, 0)
        assert [await one.runs(), await one.runs()] == [True, True]
        await primary.ask("REPLICAOF", "127.0.0.1", 1)
        assert not await one.runs(), "READONLY: this replica knows by itself"
        assert one.store.condition().degraded
        one.link._client.connection_pool.connection_kwargs["port"] = promoted.port  # where its name leads now
        one.link._client.connection_pool.reset()
        await promoted.ask("REPLICAOF", "NO", "ONE")
        time.ms += PAUSES.pause_ms_max
        assert not await one.runs()
        assert not one.store.condition().degraded
        await one.store.close()


async def test_an_answer_that_was_lost_is_not_applied_twice(replicas: list[Replica]) -> None:
    one, _, _ = replicas
    assert await one.runs(WARM)
    evaluate = one.link._evaluate

    async def losing(run: object) -> object:
        await evaluate(run)  # type: ignore[arg-type]
        one.link._evaluate = evaluate  # type: ignore[method-assign]
        raise ConnectionLost

    one.link._evaluate = losing  # type: ignore[method-assign, assignment]
    assert await one.store.apply("k", lambda it: (replace(it, count=it.count + 1), it.count)) == 0
    assert (await one.entry()).count == 1


async def test_in_the_usual_case_a_change_is_one_trip(replicas: list[Replica]) -> None:
    one, other, _ = replicas
    await one.runs(WARM)
    before = one.link.runs
    await one.runs(WARM)
    assert one.link.runs - before == 2, "one to admit, one to settle"
    await other.runs(WARM)
    before = one.link.runs
    await one.runs(WARM)
    assert one.link.runs - before == 3, "one more where another replica was there in between"


@pytest.mark.parametrize(("down", "told"), [(Down.ALLOW, [True] * 4), (Down.LOCAL, [True, True, False, False])])
async def test_a_person_says_what_becomes_of_requests_meanwhile(
    server: RedisServer, down: Down, told: list[bool]
) -> None:
    server.kill()
    alone = Replica(server, Clock(1_800_000_000_000), 0, down)
    assert [await alone.runs() for _ in range(4)] == told
    assert alone.store.in_flight == 0
    await alone.store.close()


async def test_blocking_refuses_large_requests_only_and_lets_running_ones_end(server: RedisServer) -> None:
    alone = Replica(server, Clock(1_800_000_000_000), 0, Down.BLOCK)
    _, name = await alone.begin()
    server.kill()
    with pytest.raises(StateDown):
        await alone.begin()
    await alone.end(name)
    small = replace(lease("small"), fate=replace(fate(), input_bytes=POLICY.large_bytes - 1))
    decision = await alone.store.apply("k", lambda it: admit(it, Ask(10), alone.now_ms(), POLICY), small)
    assert decision.runs
    await alone.store.close()


async def test_the_first_one_leaves_the_secret_and_the_others_take_it(server: RedisServer) -> None:
    address = parse_state_address(server.url)
    assert agreed_secret(address, b"a" * 32) == agreed_secret(address, b"b" * 32) == b"a" * 32


async def test_one_that_was_overtaken_has_the_next_turn(replicas: list[Replica]) -> None:
    """A busy replica needs one trip, the other two: without turns it would always be in front."""
    one, other, third = replicas
    for replica in replicas:
        await replica.runs()
    overtaken = await one.server.ask("HGET", f"{PREFIX}{{k}}", "t")
    assert overtaken is not None
    await one.server.ask("HSET", f"{PREFIX}{{k}}", "w", f"somebody {10**15}")
    deaf = RedisStore(third.link, POLICY, third.now_ms, deadline_s=0.2)
    with pytest.raises(StoreFailed, match="overtaken"):
        await deaf.apply("k", lambda entry: (entry, None))
    await one.server.ask("HSET", f"{PREFIX}{{k}}", "w", "somebody 1")
    await deaf.apply("k", lambda entry: (entry, None))
    assert await one.server.ask("HGET", f"{PREFIX}{{k}}", "w") is None, "a turn that was used, or not, is over"
    assert not await other.runs()
