"""The contract of a store, held by every store.

What a store shares between processes is held by processes of their own. `linearizable` says what is checked of random
concurrent histories, and what is not.
"""

import asyncio
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.assembly import steady_clock
from cachegate.guard.budget import Entry
from cachegate.guard.machine import Ask, Ending, Result, admit, settle
from cachegate.guard.usage import Usage
from cachegate.stores.base import Answer, Change, Lease, Store
from cachegate.stores.memory import MemoryStore
from contract.linearizability import WHATS, Heard, Step, from_text, linearizable, told
from contract.store_subjects import COLD, POLICY, SHARED, SUBJECTS, WARM, Clock, Subject, fate, lease
from redis_servers import PROGRAMS, lasting_server

TESTS = Path(__file__).parent.parent
DEADLINE_S = 60.0
STILL = Clock()


@pytest.fixture(params=list(SUBJECTS))
def subject(request: pytest.FixtureRequest) -> Subject:
    return SUBJECTS[str(request.param)]


@pytest.fixture(params=list(SUBJECTS), scope="module")
def subject_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(subject: Subject, clock: Clock, tmp_path: Path) -> AsyncIterator[Store]:
    made = subject.make(tmp_path, POLICY, clock)
    await made.open()
    yield made
    await made.close()


def counted(entry: Entry) -> tuple[Entry, int]:
    return replace(entry, count=entry.count + 1), entry.count


def seen(entry: Entry) -> tuple[Entry, Entry]:
    return entry, entry


async def begin(store: Store, key: str, held: Lease, now_ms: Callable[[], int] = STILL) -> bool:
    decision = await store.apply(key, lambda entry: admit(entry, Ask(800_000), now_ms(), POLICY), held)
    return decision.runs


async def end(store: Store, key: str, held: Lease, now_ms: Callable[[], int] = STILL) -> None:
    result = replace(held.fate, ending=Ending.COMPLETED)
    await store.apply(key, lambda entry: settle(entry, result, now_ms(), POLICY), held)


async def in_flight(store: Store, key: str) -> int:
    return (await store.apply(key, seen)).in_flight


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Ask again until it holds; the deadline only ends a test that would fail."""
    async with asyncio.timeout(DEADLINE_S):
        while not await holds():  # noqa: ASYNC110 -- another process makes it hold
            await asyncio.sleep(0.01)


def evicting(subject: Subject) -> None:
    if subject.expires:
        pytest.skip("what is old there expires")


# --- one process ---


async def test_a_key_never_seen_has_a_fresh_entry(store: Store) -> None:
    assert await store.apply("a", seen) == Entry()


async def test_a_change_is_kept_per_key_and_its_answer_returned(store: Store) -> None:
    assert [await store.apply("a", counted) for _ in range(3)] == [0, 1, 2]
    assert await store.apply("b", counted) == 0


async def test_concurrent_changes_of_one_key_lose_nothing(store: Store) -> None:
    answers = await asyncio.gather(*(store.apply("a", counted) for _ in range(50)))
    assert sorted(answers) == list(range(50))


async def test_a_change_that_raises_changes_nothing(store: Store) -> None:
    await store.apply("a", counted)

    def broken(entry: Entry) -> tuple[Entry, None]:
        raise ValueError(entry)

    with pytest.raises(ValueError, match="count=1"):
        await store.apply("a", broken)
    assert await store.apply("a", counted) == 1
    assert not store.condition().degraded, "that was no failure of the store's"


async def test_every_field_of_an_entry_is_kept(store: Store) -> None:
    whole = Entry(
        count=1, unreported=True, failed_bytes=2, prefix=3, prefix_high=4, rebuilds_used=1, cancel_pass=True,
        refusal_pass=True, refusal_pass_spent=True, active_ms=5, settled_ms=6, input_bytes=7,
    )  # fmt: skip
    await store.apply("a", lambda _: (whole, None))
    assert await store.apply("a", seen) == whole


async def test_the_least_recently_active_goes_first_and_none_in_flight_r20(store: Store, subject: Subject) -> None:
    evicting(subject)
    await begin(store, "running", lease("one"))
    await store.apply("running", counted)
    for number in range(20):
        await store.apply(f"key{number}", counted)
    kept = POLICY.entries_max - 1
    assert await store.apply("running", counted) == 1, "an entry in flight is never evicted"
    assert await store.apply("key19", counted) == 1
    assert [await store.apply(f"key{20 - kept}", counted), await store.apply("key0", counted)] == [1, 0], "forgotten"


async def test_more_than_the_limit_are_kept_while_they_run_and_no_longer_r20(store: Store, subject: Subject) -> None:
    evicting(subject)
    running = [(f"key{number}", lease(f"lease{number}", WARM)) for number in range(POLICY.entries_max + 4)]
    for key, held in running:
        await begin(store, key, held)
        await store.apply(key, counted)
    assert [await store.apply(key, counted) for key, _ in running] == [1] * len(running)
    for key, held in running:
        await store.apply(key, lambda entry: (replace(entry, in_flight=entry.in_flight - 1), None), held)
    for number in range(POLICY.entries_max):
        await store.apply(f"later{number}", counted)
    assert await store.apply(running[0][0], counted) == 0, "forgotten"


async def test_a_lease_is_opened_and_closed_once_r13(store: Store, clock: Clock) -> None:
    first, second = lease("first"), lease("second")
    assert await in_flight(store, "a") == 0
    assert await begin(store, "a", first, clock)
    assert await begin(store, "a", second, clock)
    assert (await in_flight(store, "a"), await in_flight(store, "b")) == (2, 0)
    await end(store, "a", first, clock)
    assert await in_flight(store, "a") == 1
    await end(store, "a", second, clock)
    assert await in_flight(store, "a") == 0


async def test_without_a_lease_nothing_is_opened_or_closed(store: Store) -> None:
    await store.apply("a", lambda entry: (replace(entry, in_flight=entry.in_flight + 1), None))
    assert await in_flight(store, "a") == 0
    await begin(store, "a", lease("one"))
    await store.apply("a", lambda entry: (replace(entry, in_flight=0), None))
    assert await in_flight(store, "a") == 1


async def test_a_stopped_request_opens_no_lease(store: Store, clock: Clock) -> None:
    for number in range(POLICY.limit):
        held = lease(f"lease{number}")
        await begin(store, "a", held, clock)
        await end(store, "a", held, clock)
    assert not await begin(store, "a", lease("stopped"), clock)
    assert await in_flight(store, "a") == 0


async def test_a_note_changes_nothing_by_itself(store: Store, clock: Clock) -> None:
    held = lease("one")
    await begin(store, "a", held, clock)
    before = await store.apply("a", seen)
    await store.note("a", lease("one", WARM))
    await store.note("a", lease("one", COLD))
    await store.note("a", lease("never opened"))
    assert await store.apply("a", seen) == before
    await end(store, "a", held, clock)
    assert await in_flight(store, "a") == 0


async def test_silence_makes_an_entry_new_and_a_running_request_does_not_r12_r13(
    store: Store, subject: Subject, clock: Clock
) -> None:
    for number in range(POLICY.limit):
        held = lease(f"lease{number}")
        await begin(store, "a", held, clock)
        clock.ms += 1_000
        await end(store, "a", held, clock)
    clock.ms += POLICY.idle_ms - 1
    assert not await begin(store, "a", lease("too soon"), clock)
    clock.ms += POLICY.idle_ms
    long = lease("long", Usage())
    assert await begin(store, "a", long, clock), "five minutes of silence"
    await store.apply("a", lambda entry: (replace(entry, count=POLICY.limit, failed_bytes=10), None))
    evicting(subject)  # nobody says there that it runs still: test_redis.py
    clock.ms += 10 * POLICY.idle_ms
    assert not await begin(store, "a", lease("beside it"), clock), "never idle while one runs"


async def test_no_wall_clock_is_read(subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The only time is the one passed in, so no change of the machine's clock or zone moves anything."""

    def read() -> float:
        raise AssertionError("a store asked what time it is")

    for name in ("time", "time_ns", "localtime", "gmtime"):
        monkeypatch.setattr(f"time.{name}", read)
    clock = Clock()
    made = subject.make(tmp_path, POLICY, clock)
    await made.open()
    held = lease("one")
    await begin(made, "a", held, clock)
    await made.note("a", held)
    await end(made, "a", held, clock)
    assert (await made.apply("a", seen)).active_ms == clock.ms
    await made.close()


async def test_a_store_says_how_it_fares(store: Store) -> None:
    condition = store.condition()
    assert condition.kind in {*SUBJECTS, "redis"}
    assert (condition.degraded, condition.failures) == (False, 0)


# --- several of one place ---


@pytest.fixture(params=SHARED)
def shared(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def pair(shared: str, clock: Clock, tmp_path: Path) -> AsyncIterator[tuple[Store, Store]]:
    one, other = (SUBJECTS[shared].make(tmp_path, POLICY, clock) for _ in range(2))
    yield one, other
    await one.close()
    await other.close()


async def test_two_stores_of_one_place_are_one(pair: tuple[Store, Store], clock: Clock) -> None:
    one, other = pair
    assert [await one.apply("a", counted), await other.apply("a", counted), await one.apply("a", counted)] == [0, 1, 2]
    held = lease("ours")
    await begin(one, "b", held, clock)
    assert await in_flight(other, "b") == 1
    await end(one, "b", held, clock)
    assert (await other.apply("b", seen)).count == 1


async def test_who_leaves_in_good_order_leaves_nothing_in_flight(shared: str, clock: Clock, tmp_path: Path) -> None:
    one, other = (SUBJECTS[shared].make(tmp_path, POLICY, clock) for _ in range(2))
    await other.open()
    await begin(one, "a", lease("left behind"), clock)
    await one.close()

    async def freed() -> bool:
        return await in_flight(other, "a") == 0

    await until(freed)
    assert (await other.apply("a", seen)).count == 1, "and its usage counts"
    await other.close()


# --- several processes ---


@asynccontextmanager
async def process(
    kind: str, place: Path, action: str, number: int, *inside: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a process, `inside` another program where one is named."""
    if kind in PROGRAMS:
        lasting_server(kind)  # before the process is told where it is
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    program = str(TESTS / "contract" / "store_process.py")
    started = await asyncio.create_subprocess_exec(
        *inside, sys.executable, program, kind, str(place), action, str(number),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environ, limit=1 << 20,
    )  # fmt: skip
    try:
        assert await said(started) == "ready"
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.communicate()


async def said(started: asyncio.subprocess.Process) -> str:
    assert started.stdout is not None
    return (await asyncio.wait_for(started.stdout.readline(), DEADLINE_S)).decode().strip()


def go(started: asyncio.subprocess.Process) -> None:
    assert started.stdin is not None
    started.stdin.write(b"go\n")


@pytest.mark.parametrize("writers", [2, 4])
async def test_processes_that_write_at_once_lose_nothing(shared: str, tmp_path: Path, writers: int) -> None:
    times = 250
    async with (
        process(shared, tmp_path, "count", times) as first,
        process(shared, tmp_path, "count", times) as second,
        process(shared, tmp_path, "count", times) as third,
        process(shared, tmp_path, "count", times) as fourth,
    ):
        running = [first, second, third, fourth][:writers]
        for one in running:
            go(one)
        answers = [[int(number) for number in (await said(one)).split()] for one in running]
    assert all(own == sorted(own) for own in answers), "each saw its own changes in their order"
    assert sorted(number for own in answers for number in own) == list(range(writers * times))


SLEPT = ("unshare", "--time", "--boottime", "600", "--fork", "--kill-child")
"""As after ten minutes of sleep: the clock that counts it is ahead, the one of the event loop is not."""


def sleep_can_be_played() -> bool:
    return shutil.which("unshare") is not None and subprocess.run([*SLEPT, "true"], check=False).returncode == 0


async def test_the_sleep_of_the_machine_is_silence_r13(shared: str, tmp_path: Path) -> None:
    if not sleep_can_be_played():
        pytest.skip("clocks of its own for a process need Linux and the right to have them")
    store = SUBJECTS[shared].make(tmp_path, POLICY, steady_clock())
    for number in range(POLICY.limit):
        held = lease(f"lease{number}")
        await begin(store, "key-0", held, steady_clock())
        await end(store, "key-0", held, steady_clock())
    after_sleep = "0" if SUBJECTS[shared].served else "1"  # a laptop that slept tells nothing of the fleet's silence
    for inside, ran in (((), "0"), (SLEPT, after_sleep)):
        async with process(shared, tmp_path, "serve", 1, *inside) as asking:
            go(asking)
            assert await said(asking) == ran
    await store.close()


async def test_two_cold_requests_run_and_no_more_whichever_processes_ask(shared: str, tmp_path: Path) -> None:
    """Whole requests at once: each other process can have one in flight that nobody has counted yet."""
    writers, keys = 3, 5
    async with (
        process(shared, tmp_path, "serve", 50) as first,
        process(shared, tmp_path, "serve", 50) as second,
        process(shared, tmp_path, "serve", 50) as third,
    ):
        running = [first, second, third]
        for one in running:
            go(one)
        ran = sum([int(await said(one)) for one in running])
    assert POLICY.limit * keys <= ran <= (POLICY.limit + writers - 1) * keys


async def test_a_process_killed_in_flight_frees_its_counts_and_its_usage_counts_r13(
    shared: str, tmp_path: Path
) -> None:
    evicting(SUBJECTS[shared])
    store = SUBJECTS[shared].make(tmp_path, POLICY, steady_clock())
    await store.open()
    async with process(shared, tmp_path, "hold", 2) as holder:
        go(holder)
        assert await said(holder) == "held"
        assert (await store.apply("shared", seen)).in_flight == 2
        await asyncio.sleep(0)
        assert (await store.apply("shared", seen)).count == 0, "nothing is settled while its process lives"
        holder.send_signal(signal.SIGKILL)
        await holder.wait()

        async def freed() -> bool:
            return await in_flight(store, "shared") == 0

        await until(freed)
    entry = await store.apply("shared", seen)
    assert (entry.count, entry.failed_bytes) == (2, 800_000), "what was noted last, each once"
    assert not (await store.apply("shared", lambda it: admit(it, Ask(800_000), steady_clock()(), POLICY))).runs
    await store.close()


async def test_what_a_killed_process_wrote_is_whole(shared: str, tmp_path: Path) -> None:
    store = SUBJECTS[shared].make(tmp_path, POLICY, steady_clock())
    before = -1
    for _ in range(3):
        async with process(shared, tmp_path, "count", 1_000_000) as writer:
            go(writer)

            async def moved(before: int = before) -> bool:
                return (await store.apply("shared", seen)).count > before + 20

            await until(moved)
            writer.send_signal(signal.SIGKILL)
            await writer.wait()
        before = await store.apply("shared", counted)
        assert await store.apply("shared", counted) == before + 1
    assert not store.condition().degraded
    await store.close()


async def test_a_store_that_comes_later_finds_everything_and_frees_the_dead(shared: str, tmp_path: Path) -> None:
    """The last worker was killed and nobody was there to see it."""
    evicting(SUBJECTS[shared])
    async with process(shared, tmp_path, "hold", 1) as holder:
        go(holder)
        assert await said(holder) == "held"
        holder.send_signal(signal.SIGKILL)
        await holder.wait()
    late = SUBJECTS[shared].make(tmp_path, POLICY, steady_clock())
    await late.open()
    entry = await late.apply("shared", seen)
    assert (entry.in_flight, entry.count) == (0, 1), "at its start"
    await late.close()


# --- histories ---

callers = st.lists(st.lists(st.builds(Step, st.sampled_from(("begin", *WHATS)), st.sampled_from("ab")), max_size=8),
                   min_size=2, max_size=3)  # fmt: skip


@settings(max_examples=40)
@given(programs=callers)
def test_what_callers_are_told_at_once_can_have_happened_one_after_the_other(
    subject_name: str, programs: list[list[Step]]
) -> None:
    subject = SUBJECTS[subject_name]

    async def play(place: Path) -> list[list[Heard]]:
        time = itertools.count()
        stores = [subject.make(place, POLICY, STILL) for _ in range(len(programs) if subject.shared else 1)]
        answers = await asyncio.gather(
            *(
                told(stores[number % len(stores)], steps, lambda: next(time), str(number))
                for number, steps in enumerate(programs)
            )
        )
        for store in stores:
            await store.close()
        return answers

    with tempfile.TemporaryDirectory() as place:
        assert linearizable(asyncio.run(play(Path(place))))


async def test_so_can_what_processes_are_told(shared: str, tmp_path: Path) -> None:
    async with (
        process(shared, tmp_path, "history", 1) as first,
        process(shared, tmp_path, "history", 2) as second,
        process(shared, tmp_path, "history", 3) as third,
    ):
        running = [first, second, third]
        for one in running:
            go(one)
        histories = [from_text(await said(one)) for one in running]
    assert all(len(history) > 10 for history in histories)
    assert linearizable(histories)


async def test_a_store_that_reads_and_writes_apart_is_found_out() -> None:
    """The check itself, on a store that forgets what happens between its reading and its writing."""

    class Careless(MemoryStore):
        async def apply(self, key: str, change: Change[Answer], lease: Lease | None = None) -> Answer:
            del lease
            after, answer = change(self.kept(key) or Entry())
            await asyncio.sleep(0)
            self.keep(key, after)
            return answer

    time = itertools.count()
    steps = [Step("begin", "a"), Step("cold", "a"), Step("begin", "a")]

    async def play(store: Store) -> list[list[Heard]]:
        return await asyncio.gather(*(told(store, steps, lambda: next(time), name) for name in "xy"))

    assert not linearizable(await play(Careless(8)))
    assert linearizable(await play(MemoryStore(8)))


def test_a_fate_is_a_shutdown() -> None:
    assert isinstance(fate(), Result)
    assert lease("any").fate.ending is Ending.SHUTDOWN
