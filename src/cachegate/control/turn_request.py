"""From a thread to the request that its next inference is. Pure.

The request is a client's like any other: rendered in the thread's protocol and read by `wire.parse`. The history is
rendered from its items in their order, so that what was sent before is sent again in the same bytes and the provider's
cache finds it. A compaction asks for a summary behind the unchanged history, for the same reason.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from cachegate.control.params import ContentItem, DynamicTool, ImageInput, InputText, TextInput
from cachegate.control.thread import Json, Settings, instructions_of
from cachegate.errors import BadInput, ErrorKind
from cachegate.providers.headers import CREDENTIALS, Headers
from cachegate.wire.clients import CLASS_HEADER, THREAD_HEADER
from cachegate.wire.codecs import CODECS
from cachegate.wire.compaction import summary_message, summary_request
from cachegate.wire.facts import InferenceRequest, Operation, Protocol, RequestClass, Sender
from cachegate.wire.hub import (
    Compacted,
    Image,
    Item,
    Message,
    Part,
    Request,
    Role,
    Sampling,
    Target,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolRef,
    ToolResult,
)
from cachegate.wire.parse import Received, parse
from cachegate.wire.quirks import Quirk

PATHS = {Protocol.RESPONSES: "/v1/responses", Protocol.MESSAGES: "/v1/messages"}
"""The protocols that a thread may have, and the paths that its requests stand for."""
PASSED_UP = CREDENTIALS | {
    "user-agent", "anthropic-version", "anthropic-beta", "openai-organization", "openai-project", "openai-beta",
    "chatgpt-account-id",
}  # fmt: skip
"""Headers of the one who connected that go along with the requests of the turns it starts."""
ROOM_FOR_COMPACTION_BYTES = 65_536
"""A history may grow until this much is left below `limits.bodyBytesMax`: its compaction has to fit, too."""
_OWN: Headers = (("content-type", "application/json"), ("accept", "text/event-stream"))
_VERSION = ("anthropic-version", "2023-06-01")


@dataclass(frozen=True, slots=True)
class Asking:
    """One inference of a thread."""

    thread_id: str
    settings: Settings
    history: tuple[Item, ...] = field(repr=False)
    headers: Headers = field(repr=False)
    """As `passed_up` returned them."""
    compacts: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """The request of an inference, and what its answer is read by."""

    inference: InferenceRequest
    request: Request
    target: Target


def passed_up(headers: Headers) -> Headers:
    """Return which headers of a connection its turns need: who pays, and how the provider is to be spoken to."""
    return tuple((name, value) for name, value in headers if name.lower() in PASSED_UP)


def inference_of(asking: Asking, body_bytes_max: int, secret: bytes) -> Asked:
    """Return the request. Raises BadInput where the history cannot be sent.

    Who asks, and in which budget, is what the host says and nothing that stands in the conversation (R2, R4).
    """
    settings, protocol = asking.settings, asking.settings.protocol
    history = (*asking.history, summary_request()) if asking.compacts else asking.history
    request = request_of(settings, history, asking.thread_id)
    target = Target(settings.model, "", quirks=frozenset({Quirk.NO_STORE}), origin=protocol)
    body = CODECS[protocol].render_request(request, target)
    if len(body) > body_bytes_max - (0 if asking.compacts else ROOM_FOR_COMPACTION_BYTES):
        raise BadInput(
            f"The thread's history has {len(body)} bytes, more than limits.bodyBytesMax ({body_bytes_max}) has room "
            "for. Compact the thread with thread/compact/start, or send less.",
            ErrorKind.TOO_LARGE,
        )
    request_class = RequestClass.COMPACTION if asking.compacts else RequestClass.CHAT
    own = (*_OWN, (THREAD_HEADER, asking.thread_id), *(((CLASS_HEADER, "compaction"),) if asking.compacts else ()))
    version = (_VERSION,) if protocol is Protocol.MESSAGES and not Sender.of(asking.headers).header(_VERSION[0]) else ()
    received = Received(protocol, Operation.GENERATE, (*asking.headers, *version, *own), "", body, body)
    inference = parse(received, secret)
    facts = replace(inference.facts, caller=f"cachegate:{asking.thread_id}", request_class=request_class)
    return Asked(replace(inference, facts=facts), request, target)


def request_of(settings: Settings, history: tuple[Item, ...], thread_id: str) -> Request:
    """Return a thread's request in the hub."""
    return Request(
        model=settings.model,
        stream=True,
        instructions=instructions_of(settings),
        items=history,
        tools=settings.tools,
        sampling=Sampling(max_output_tokens=settings.max_output_tokens),
        thinking=Thinking() if settings.effort is None else Thinking(effort=settings.effort, show=True),
        cache_key=thread_id,
    )


def tools_of(tools: Iterable[DynamicTool]) -> tuple[Tool, ...]:
    """Return a client's tools as the hub has them."""
    return tuple(Tool(ToolRef(tool.name), tool.description or None, tool.input_schema) for tool in tools)


def user_message(parts: Iterable[TextInput | ImageInput]) -> Message:
    """Return the user's input as the hub has it."""
    return Message(Role.USER, tuple(_part(part) for part in parts))


def _part(part: TextInput | ImageInput) -> Part:
    return Text(part.text) if isinstance(part, TextInput) else Image(url=part.url)


def shown_input(parts: Iterable[TextInput | ImageInput]) -> tuple[Json, ...]:
    """Return the user's input as a client is shown it."""
    return tuple(
        {"type": "text", "text": part.text} if isinstance(part, TextInput) else {"type": "image", "url": part.url}
        for part in parts
    )


def tool_result(call: ToolCall, items: Iterable[ContentItem], *, success: bool) -> ToolResult:
    """Return a tool's answer as the hub has it."""
    parts = tuple(Text(item.text) if isinstance(item, InputText) else Image(url=item.image_url) for item in items)
    return ToolResult(call.call_id, parts, is_error=not success)


def shown_content(items: Iterable[ContentItem]) -> tuple[Json, ...]:
    """Return a tool's answer as a client is shown it."""
    return tuple(
        {"type": "inputText", "text": item.text}
        if isinstance(item, InputText)
        else {"type": "inputImage", "imageUrl": item.image_url}
        for item in items
    )


def compacted(summary: str) -> tuple[Item, ...]:
    """Return the history that a compaction leaves: one message of the user's that holds the summary."""
    return (summary_message(Compacted(text=summary)),)
