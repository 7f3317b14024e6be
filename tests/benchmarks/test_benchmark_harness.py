"""A harness that cannot see a loss proves nothing: does it count, time and judge what it says it does?"""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from benchmarks.answers import END, Count, count, deltas
from benchmarks.bodies import SIZES, body_of, head
from benchmarks.fake_upstream import Connection, Upstream
from benchmarks.load import Closed, LoadFailed, Probe, hammer, idle, quiet, stream
from benchmarks.plan import Plan
from benchmarks.report import as_json, bars, ratio, table
from benchmarks.scenarios import CACHEGATE, DIRECT, NGINX, Figures

BODY = body_of(4_096)
PLAN = Plan(events=40, batch=7)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    upstream = Upstream()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(upstream), "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


async def answer_of(port: int, plan: Plan) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head(len(BODY), plan, "t") + BODY)
    answer = await reader.readuntil(END)
    writer.close()
    await writer.wait_closed()
    return answer


def chunks_of(answer: bytes) -> list[bytes]:
    """Split the answer at its events: the head with the first one, then one chunk each."""
    head, *rest = answer.split(b"\r\n\r\n", 1)[1].split(b"event: ")
    size, events = head, []
    for part in rest:
        data, _, after = part.rpartition(b"\n\n\r\n")
        events.append(size + b"event: " + data + b"\n\n\r\n")
        size = after
    return [answer.split(b"\r\n\r\n", 1)[0] + b"\r\n\r\n", *events, size]


async def test_a_whole_answer_has_every_event(port: int) -> None:
    answer = await answer_of(port, PLAN)
    assert b"".join(chunks_of(answer)) == answer
    assert count(answer, PLAN) == Count(47, 47)
    assert deltas(answer) == 40


async def test_every_damage_is_a_loss(port: int) -> None:
    whole = await answer_of(port, PLAN)
    chunks = chunks_of(whole)
    damaged = {
        "one event missing": b"".join(chunks[:20] + chunks[21:]),
        "one event twice": b"".join([*chunks[:20], chunks[19], *chunks[20:]]),
        "two events swapped": b"".join([*chunks[:20], chunks[21], chunks[20], *chunks[22:]]),
        "the last event missing": b"".join(chunks[:-2] + chunks[-1:]),
        "cut in a chunk": whole[: len(whole) // 2],
        "no end": whole[: -len(b"0\r\n\r\n")],
        "bytes after the end": whole + b"x",
        "another status": whole.replace(b"200 OK", b"502 Bad", 1),
    }
    for words, answer in damaged.items():
        assert answer != whole, words
        counted = count(answer, PLAN)
        assert counted.lost > 0, words
        assert counted.fault, words


async def test_streams_are_received_whole_and_events_are_counted_in_the_window(port: int) -> None:
    burst = await stream(port, Plan(events=300, batch=10), BODY, 12, lambda: 0)
    assert (burst.lost, burst.faults) == (0, [])

    readings = iter(range(0, 1_000, 7))
    paced = await stream(port, Plan(events=20, gap_us=4_000), BODY, 5, lambda: next(readings))
    assert (paced.lost, paced.faults) == (0, [])
    assert 0 < paced.window_events <= 5 * 20
    assert paced.window_cpu_ns == 7


async def test_idle_streams_stay_open_while_the_meter_is_read_and_are_gone_when_it_is_quiet(port: int) -> None:
    assert await idle(port, BODY, 30, lambda: 42) == 42
    await quiet(port)


async def test_a_closed_loop_counts_what_was_answered(port: int) -> None:
    done = await hammer(port, Plan(events=3), BODY, Closed(2, 0.1, 5), lambda: 0)
    assert done.requests > 0
    assert done.seconds >= 0.1


async def test_a_closed_loop_does_not_count_errors() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        refused_port = server.sockets[0].getsockname()[1]
        with pytest.raises(LoadFailed, match="400"):
            await hammer(refused_port, PLAN, BODY, Closed(1, 5.0, 1), lambda: 0)


async def test_the_probe_times_an_answer(port: int) -> None:
    probe = Probe(port, BODY, "t")
    try:
        assert await asyncio.to_thread(probe.ask) > 0
        assert await asyncio.to_thread(probe.ask) > 0
    finally:
        probe.close()


@pytest.mark.parametrize("size", SIZES.values())
def test_a_body_has_its_size_and_is_an_ordinary_request(size: int) -> None:
    body = body_of(size)
    assert len(body) == size
    assert body == body_of(size)
    request = json.loads(body)
    assert (request["model"], request["stream"]) == ("gpt-x", True)
    assert request["input"][-1]["role"] == "user"
    assert b"\\n" in body
    assert b'\\"' in body


def test_a_plan_travels_as_a_header() -> None:
    plan = Plan(events=7, gap_us=10, batch=3, hold=1)
    assert Plan.of(plan.header()) == plan
    assert Plan.of("") == Plan()


def figures_of(**values: tuple[list[float], list[float], list[float]]) -> Figures:
    figures = Figures()
    for measure, rounds in values.items():
        for server, taken in zip((DIRECT, NGINX, CACHEGATE), rounds, strict=True):
            for value in taken:
                figures.add(measure.replace("_1mb", ":1 MB").replace("_4mb", ":4 MB"), server, value)
    return figures


def test_a_ratio_is_the_median_of_the_rounds_own_ratios() -> None:
    figures = figures_of(rate=([], [1.0, 10.0, 100.0], [2.0, 20.0, 1_000.0]))
    assert ratio(figures, "rate", NGINX) == 2
    assert ratio(figures, "rate", DIRECT) is None


@pytest.mark.parametrize(
    ("added", "cpu", "lost", "reached"),
    [
        (5.0, 20.0, 0.0, (True, True, True)),
        (5.1, 20.0, 0.0, (False, True, True)),
        (5.0, 20.1, 0.0, (True, False, True)),
        (5.0, 20.0, 1.0, (True, True, False)),
    ],
)
def test_the_bars_are_judged(added: float, cpu: float, lost: float, reached: tuple[bool, ...]) -> None:
    figures = figures_of(added_1mb=([], [1.0], [added]), body_cpu_4mb=([], [1.0], [cpu]), lost=([0.0], [0.0], [lost]))
    assert tuple(bar.reached for bar in bars(figures)) == reached


def test_one_lossy_round_is_enough_and_what_was_not_measured_is_not_reached() -> None:
    lossy = figures_of(lost=([], [], [0.0, 3.0, 0.0]))
    assert [bar.figure for bar in bars(lossy)][2] == "3 lost in the worst round"
    assert not any(bar.reached for bar in bars(Figures()))


def test_the_table_and_the_json_show_the_same_figures() -> None:
    figures = figures_of(rate=([30.0], [20.0], [10.0]))
    lines = table(figures, (DIRECT, NGINX, CACHEGATE))
    assert lines[1].split()[-7:] == ["30", "20", "10", "0.5", "x", "0.333", "x"]
    [row] = json.loads(json.dumps(as_json(figures, {"scale": "quick"})))["rows"]
    assert row["medians"] == {"direct": 30.0, "nginx": 20.0, "cachegate": 10.0}
    assert row["timesNginx"] == 0.5
