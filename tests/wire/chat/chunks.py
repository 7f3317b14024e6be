"""Chat answers as providers send them, put together from deltas, and how they are read and written."""

import json
from collections.abc import Iterable
from typing import Any

from openai.types.chat import ChatCompletion, ChatCompletionChunk

from cachegate.wire.chat.codec import CODEC
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Event, Request, Target, Tool, ToolRef
from cachegate.wire.quirks import Quirk
from cachegate.wire.sse import SseReader
from wire.vendor_sdks import JSON, Wire, openai_client

_HEAD = {"id": "gen-1", "object": "chat.completion.chunk", "created": 5, "model": "kimi-k3"}
DONE = b"data: [DONE]\n\n"
ROLE = {"role": "assistant", "content": ""}
USAGE = {"prompt_tokens": 90, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64}}
SHELL = Tool(ToolRef("shell"), "Runs.", {"type": "object", "properties": {"cmd": {"type": "string"}}})
SPAWN = Tool(ToolRef("spawn", "agents"), "Spawns.", {"type": "object", "properties": {}})
PATCH = Tool(ToolRef("apply_patch", custom=True), "Patches.", grammar={"type": "grammar", "definition": "start: x"})
ASKED = Request("m", stream=True, tools=(SHELL, SPAWN, PATCH))


def target(*quirks: Quirk, origin: Protocol | None = Protocol.CHAT, readings: str | None = None) -> Target:
    return Target("kimi", "account-one", "thread-1", frozenset(quirks), origin, readings)


def line(value: Any) -> bytes:
    return b"data: %b\n\n" % json.dumps(value, ensure_ascii=False).encode()


def chunk(delta: Any = None, reason: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": reason}
    return line({**_HEAD, "choices": [choice], **more})


def usage(**more: Any) -> bytes:
    return line({**_HEAD, "choices": [], "usage": {**USAGE, **more}})


def calls(*entries: Any) -> bytes:
    return chunk({"tool_calls": list(entries)})


def piece(arguments: Any = None, **more: Any) -> dict[str, Any]:
    """Return one entry of `tool_calls`."""
    name = more.pop("name", None)
    function = {**({"name": name} if name else {}), **({} if arguments is None else {"arguments": arguments})}
    return {"function": function, **more}


def read(*pieces: bytes, request: Request = ASKED, there: Target | None = None) -> tuple[Event, ...]:
    """Read a stream, to its end."""
    reader, cutter = CODEC.stream_reader(request, there or target()), SseReader()
    said = [event for part in pieces for sse in cutter.feed(part)[1] for event in reader.read(sse)]
    return (*said, *reader.end())


def read_body(body: Any, request: Request = ASKED, there: Target | None = None) -> tuple[Event, ...]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return CODEC.read_body(request, there or target(), raw)


def write(events: Iterable[Event], request: Request = ASKED, there: Target | None = None) -> bytes:
    writer = CODEC.stream_writer(request, there or target(origin=Protocol.MESSAGES))
    return b"".join(writer.write(event) for event in events)


def chunks_of(stream: bytes) -> list[dict[str, Any]]:
    """Return the chunks of a stream, without its end."""
    return [json.loads(event.data) for event in SseReader().feed(stream)[1] if event.data != b"[DONE]"]


def deltas_of(stream: bytes) -> list[dict[str, Any]]:
    return [chunk["choices"][0]["delta"] for chunk in chunks_of(stream) if chunk["choices"]]


def sdk_chunks(stream: bytes) -> list[ChatCompletionChunk]:
    with openai_client(Wire(stream)) as client:
        return list(client.chat.completions.create(model="m", messages=[], stream=True))


def sdk_final(stream: bytes) -> ChatCompletion:
    """Read a stream with the SDK's own accumulator."""
    with openai_client(Wire(stream)) as client, client.chat.completions.stream(model="m", messages=[]) as events:
        return events.get_final_completion()


def sdk_whole(body: bytes) -> ChatCompletion:
    with openai_client(Wire(body, kind=JSON)) as client:
        return client.chat.completions.create(model="m", messages=[])
