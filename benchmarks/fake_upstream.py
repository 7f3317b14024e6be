"""A fake provider for the load: the Responses protocol over SSE, on a bare asyncio protocol so that it costs little.

It reads each request to its end and streams the answer that the request's plan asks for: as a burst, paced, or held
open in silence. Its usage is always warm (60,000 of 61,234 tokens cached), so that the guard never stops the load.
`GET /quiet` answers once no stream is running any more; this is how a measurement knows that it may end.
Prints its address in the first line. Run by `benchmarks.servers`; alone: `python -m benchmarks.fake_upstream`.
"""

import asyncio
import functools
import json
from collections.abc import Callable
from typing import cast

from benchmarks.plan import LEADING_EVENTS, PLAN_HEADER, Plan

Json = dict[str, object]

_BUFFER = memoryview(bytearray(262_144))
"""One for all connections: what is received is counted before anybody else can receive."""
_HEAD_BYTES_MAX = 65_536
_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
    b"X-Request-Id: req_bench\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_END = b"0\r\n\r\n"
_ITEM: Json = {"id": "msg_bench", "type": "message", "role": "assistant"}
_WHERE: Json = {"item_id": "msg_bench", "output_index": 0, "content_index": 0}
_TEXT = "abcdefghijklmnopqrstuvwxyz 0123456789 return"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(kind: str, number: int, more: Json) -> bytes:
    data = json.dumps({"type": kind, "sequence_number": number, **more}, separators=(",", ":")).encode()
    return _chunk(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": []}


def _response(status: str, output: list[Json], usage: Json | None) -> Json:
    return {
        "id": "resp_bench",
        "object": "response",
        "created_at": 1_760_000_000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "bench",
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage,
    }


def _opening() -> bytes:
    item: Json = {**_ITEM, "status": "in_progress", "content": []}
    return (
        _event("response.created", 0, {"response": _response("in_progress", [], None)})
        + _event("response.output_item.added", 1, {"output_index": 0, "item": item})
        + _event("response.content_part.added", 2, {**_WHERE, "part": _part("")})
    )


_OPENING = _opening()


def _delta(number: int) -> bytes:
    """Return one text delta, as large as those of a real model."""
    data = (
        b"event: response.output_text.delta\ndata: "
        b'{"type":"response.output_text.delta","sequence_number":%d,"item_id":"msg_bench","output_index":0,'
        b'"content_index":0,"delta":"%b","logprobs":[]}\n\n'
    ) % (number, _TEXT.encode())
    return _chunk(data)


def _closing(number: int, events: int) -> bytes:
    """Return the last events; the response object comes with a warm usage."""
    done: Json = {**_ITEM, "status": "completed", "content": [_part("done")]}
    usage: Json = {
        "input_tokens": 61_234,
        "input_tokens_details": {"cached_tokens": 60_000},
        "output_tokens": events,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 61_234 + events,
    }
    return (
        _event("response.output_text.done", number, {**_WHERE, "text": "done", "logprobs": []})
        + _event("response.content_part.done", number + 1, {**_WHERE, "part": _part("done")})
        + _event("response.output_item.done", number + 2, {"output_index": 0, "item": done})
        + _event("response.completed", number + 3, {"response": _response("completed", [done], usage)})
        + _END
    )


@functools.lru_cache(maxsize=64)
def _plan(header: str) -> Plan:
    return Plan.of(header)


@functools.lru_cache(maxsize=1_024)
def _deltas(first: int, upto: int) -> bytes:
    """Return the deltas numbered `first` to `upto`, without it. A load asks for the same ones all the time."""
    return b"".join(_delta(number) for number in range(first, upto))


@functools.lru_cache(maxsize=64)
def _last(events: int) -> bytes:
    return _closing(LEADING_EVENTS + events, events)


class Upstream:
    """What the connections share."""

    def __init__(self) -> None:
        self._running = 0
        self._waiting: list[Callable[[], None]] = []

    def began(self) -> None:
        """Note an answer that began."""
        self._running += 1

    def ended(self) -> None:
        """Note an answer that ended, whole or not."""
        self._running -= 1
        if self._running == 0:
            for answer in self._waiting:
                answer()
            self._waiting.clear()

    def when_quiet(self, answer: Callable[[], None]) -> None:
        """Call `answer` as soon as no stream is running."""
        if self._running:
            self._waiting.append(answer)
        else:
            answer()


class Connection(asyncio.BufferedProtocol):
    """One connection: requests one after the other, each answered by its plan."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._left = 0
        self._plan: Plan | None = None
        self._next = 0
        self._due_s = 0.0
        self._timer: asyncio.Handle | None = None
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol`: the client went, and with it its stream."""
        del exc
        self._finish()
        self._transport = None

    def get_buffer(self, sizehint: int) -> memoryview:
        """See `asyncio.BufferedProtocol`."""
        del sizehint
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`: a body is counted, not kept."""
        if self._left:
            self._left -= nbytes
        else:
            self._head += bytes(_BUFFER[:nbytes])
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                if len(self._head) > _HEAD_BYTES_MAX:
                    self._drop()
                return
            self._left = self._body_bytes(self._head[:end]) - (len(self._head) - end - 4)
        if self._left == 0:
            head, self._head = self._head, b""
            self._answer(head)
        elif self._left < 0:
            self._drop()

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol`: the reader is slower than we are."""
        self._paused = True

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._paused = False
        if self._plan is not None and not self._plan.hold and self._timer is None:
            self._step()

    @staticmethod
    def _body_bytes(head: bytes) -> int:
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                return int(value)
        return 0

    def _answer(self, head: bytes) -> None:
        lines = head.split(b"\r\n\r\n", 1)[0].decode("latin-1").split("\r\n")
        if lines[0].startswith("GET "):
            self._upstream.when_quiet(self._quiet)
            return
        plans = (line.partition(":")[2].strip() for line in lines if line.lower().startswith(PLAN_HEADER))
        self._plan = plan = _plan(next(plans, ""))
        self._next = 0
        self._upstream.began()
        loop = asyncio.get_running_loop()
        if plan.hold:
            self._write(_HEAD + _OPENING)
        elif plan.gap_us:
            self._write(_HEAD + _OPENING)
            self._due_s = loop.time() + plan.gap_us / 1e6
            self._timer = loop.call_at(self._due_s, self._step)
        else:
            self._step()

    def _step(self) -> None:
        """Write the next deltas, and the end behind the last one."""
        self._timer = None
        plan = self._plan
        if plan is None or self._paused:
            return
        first, upto = self._next, min(plan.events, self._next + (1 if plan.gap_us else plan.batch))
        parts = [_HEAD, _OPENING] if first == 0 and not plan.gap_us else []
        parts.append(_deltas(LEADING_EVENTS + first, LEADING_EVENTS + upto))
        self._next = upto
        if upto == plan.events:
            parts.append(_last(upto))
            self._write(b"".join(parts))
            self._finish()
            return
        self._write(b"".join(parts))
        loop = asyncio.get_running_loop()
        if plan.gap_us:
            self._due_s = max(self._due_s + plan.gap_us / 1e6, loop.time() - 0.05)
            self._timer = loop.call_at(self._due_s, self._step)
        elif not self._paused:
            self._timer = loop.call_soon(self._step)

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._plan is not None:
            self._plan = None
            self._upstream.ended()

    def _quiet(self) -> None:
        self._write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nquiet\n")

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def _serve() -> None:
    upstream = Upstream()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(upstream), "127.0.0.1", 0, backlog=4_096)
    print(f"listening on {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop where it is installed; the load then costs a fifth less."""
    try:
        import uvloop  # noqa: PLC0415 -- not on every system
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as _runner:
        _runner.run(_serve())
