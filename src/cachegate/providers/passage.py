"""How one request passes through an HTTP provider: as it is, or through a translation. No I/O; `http.py` does that.

Both ways observe the upstream's own bytes with the upstream protocol's reader; they differ in what the client is told.
"""

from dataclasses import dataclass
from typing import Protocol as Interface

from multidict import CIMultiDict

from cachegate.errors import BadInput, ErrorKind
from cachegate.providers.base import Call
from cachegate.providers.headers import Headers, to_client, to_upstream
from cachegate.providers.presets import Preset
from cachegate.wire.affinity import thread_key
from cachegate.wire.body import encode
from cachegate.wire.chat.errors import with_told_errors
from cachegate.wire.chat.usage_request import asks_for_usage, with_usage, without_usage
from cachegate.wire.codecs import CODECS
from cachegate.wire.envelopes import PREFIX
from cachegate.wire.facts import InferenceRequest, Operation, Protocol
from cachegate.wire.hub import Broken, Target
from cachegate.wire.protocols import DIALECTS, Reader
from cachegate.wire.quirks import Quirk
from cachegate.wire.silence import Silence
from cachegate.wire.sse import SseEvent
from cachegate.wire.translation import StreamTranslation, Translation

ORDER = (Protocol.MESSAGES, Protocol.RESPONSES, Protocol.CHAT)
"""Which protocol to translate to when an upstream speaks several: the one that says most about thoughts and caching."""
_SSE = ("content-type", "text/event-stream")
_JSON = ("content-type", "application/json")
_ENVELOPE = PREFIX.encode()
_COMPACTION_TRIGGER = b'"compaction_trigger"'
_CODEX_TOOLS = (b'"namespace"', b'"additional_tools"', b'"custom"')
"""Kinds of tools that only OpenAI knows; they stand in a string only with their quotes escaped."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a configured provider adds to its preset."""

    preset: Preset
    protocols: frozenset[Protocol]
    """Those it is allowed to be asked in."""
    key: str | None
    """Configured key; None passes the client's own credentials through."""
    translation_key: str | None
    """Key for translated requests where `key` is None: a client's credentials belong to its own protocol's provider."""
    zero_is_unknown: bool = False

    def reader(self, protocol: Protocol) -> Reader:
        """Return a reader for one of the provider's answers."""
        return DIALECTS[protocol].reader(self.preset.readings, zero_is_unknown=self.zero_is_unknown)

    def relays(self, request: InferenceRequest) -> bool:
        """Whether the request can go up as it is.

        It cannot where the provider does not speak the protocol, nor where the conversation holds what it cannot read:
        envelopes of ours, the wish for a compaction that it does not know, or Codex's own kinds of tools.
        """
        if (request.protocol, request.operation) not in self.preset.paths or request.protocol not in self.protocols:
            return False
        if request.operation is Operation.COUNT_TOKENS:
            return True
        refused = [_ENVELOPE]
        if request.protocol is Protocol.RESPONSES:
            # Only Codex's own protocol has these, and each look costs a pass over the body.
            refused += () if self.preset.compacts else (_COMPACTION_TRIGGER,)
            refused += _CODEX_TOOLS if Quirk.PLAIN_TOOLS in self.preset.quirks else ()
        return not any(marker in request.body for marker in refused)

    def upstream_protocol(self, request: InferenceRequest) -> Protocol:
        """Return the protocol to ask in. Raises BadInput when there is none."""
        speaks = [protocol for protocol in ORDER if protocol in self.protocols and self.preset.speaks(protocol)]
        if request.protocol in speaks:
            return request.protocol
        if not speaks:
            raise BadInput(f"A provider of kind {self.preset.kind} takes no {request.protocol.value} requests.")
        return speaks[0]


class Passage(Interface):
    """One request on its way up, and its answer on its way down."""

    path: str
    """Below the provider's base URL."""
    body: bytes
    headers: CIMultiDict[str]
    reader: Reader

    @property
    def keepalive(self) -> bytes:
        """A frame that says nothing to the client."""

    @property
    def over(self) -> bool:
        """Whether the client has been told the end of the answer."""

    def head(self, headers: Headers, *, streamed: bool) -> Headers:
        """Return the headers of the answer for the client."""

    def forward(self, whole: bytes, events: list[SseEvent]) -> bytes:
        """Return what the client is told by whole events of the upstream."""

    def end(self, rest: bytes) -> bytes:
        """Return what is left to tell when the upstream's stream is over."""

    def fail(self, kind: ErrorKind, message: str) -> bytes:
        """Return what ends the client's stream as failed."""

    def answer(self, status: int, body: bytes) -> tuple[int, bytes]:
        """Return status and body of an unstreamed answer."""


class Relayed:
    """As it is: the same bytes up and down."""

    def __init__(self, call: Call, terms: Terms) -> None:
        request = call.request
        self.path = terms.preset.paths[request.protocol, request.operation]
        self.body, encoding = _same_body(request, call.model)
        self.headers = CIMultiDict(to_upstream(request.headers, keep_credentials=terms.key is None))
        if encoding:
            self.headers["content-encoding"] = encoding
        if not terms.preset.betas:
            self.headers.popall("anthropic-beta", None)
        _set_key(self.headers, terms.preset, terms.key)
        _set_affinity(self.headers, terms.preset, call)
        self.reader = terms.reader(request.protocol)
        self._in_chat = request.protocol is Protocol.CHAT
        self._hides_usage = _asks_on_behalf(request, terms.preset)
        if self._hides_usage:
            self.body = with_usage(request.body if encoding else self.body)
            self.headers.popall("content-encoding", None)

    @property
    def keepalive(self) -> bytes:
        """See `Passage`."""
        return self.reader.keepalive

    @property
    def over(self) -> bool:
        """See `Passage`. Some servers end a Chat stream without its `[DONE]`, after the model ended its answer."""
        return self.reader.terminal or self.reader.finished

    def head(self, headers: Headers, *, streamed: bool) -> Headers:
        """See `Passage`."""
        del streamed
        return to_client(headers)

    def forward(self, whole: bytes, events: list[SseEvent]) -> bytes:
        """See `Passage`."""
        del events
        told = without_usage(whole) if self._hides_usage else whole
        return with_told_errors(told) if self._in_chat else told

    def end(self, rest: bytes) -> bytes:
        """See `Passage`. Of a stream that was cut, the begun event is left out."""
        return rest if self.over else b""

    def fail(self, kind: ErrorKind, message: str) -> bytes:
        """See `Passage`."""
        return self.reader.terminal_error(kind, message)

    def answer(self, status: int, body: bytes) -> tuple[int, bytes]:
        """See `Passage`."""
        return status, body


class Translated:
    """Through the hub: another protocol up, the client's own down."""

    def __init__(self, call: Call, terms: Terms) -> None:
        request, preset = call.request, terms.preset
        upstream = terms.upstream_protocol(request)
        thread = thread_key(request.facts.caller, call.model)
        target = Target(
            call.model, call.binding, thread, frozenset(preset.quirks), upstream, preset.readings, terms.zero_is_unknown
        )
        self._translation = Translation.of(request, CODECS[request.protocol], CODECS[upstream], target)
        self._stream: StreamTranslation | None = None
        self._streamed = request.facts.stream
        self._request_id = call.request_id
        self.path = preset.paths[upstream, Operation.GENERATE]
        self.body = self._translation.body()
        self.headers = self._headers(call, terms)
        self.reader = terms.reader(upstream)
        self._silence = Silence(request.protocol)

    @property
    def keepalive(self) -> bytes:
        """See `Passage`."""
        return self._silence.frame

    @property
    def over(self) -> bool:
        """See `Passage`."""
        return self._running.over

    def head(self, headers: Headers, *, streamed: bool) -> Headers:
        """See `Passage`."""
        kept = tuple((name, value) for name, value in to_client(headers) if name.lower() != "content-type")
        return (*kept, _SSE if streamed else _JSON)

    def forward(self, whole: bytes, events: list[SseEvent]) -> bytes:
        """See `Passage`."""
        del whole
        told = self._running.feed(events)
        self._silence.told(told)
        return told

    def end(self, rest: bytes) -> bytes:
        """See `Passage`."""
        del rest
        return self._running.end()

    def fail(self, kind: ErrorKind, message: str) -> bytes:
        """See `Passage`."""
        return self._running.fail(kind, message)

    def answer(self, status: int, body: bytes) -> tuple[int, bytes]:
        """See `Passage`."""
        if not 200 <= status < 300:  # noqa: PLR2004 -- the HTTP class of success
            error = self._translation.error(status, body, self._request_id)
            return error.status, error.body
        translated, broken = self._translation.answer(body)
        if broken is None:
            return status, translated
        return self._failed(broken)

    def _failed(self, broken: Broken) -> tuple[int, bytes]:
        error = self._translation.client.write_error(broken, self._request_id)
        return error.status, error.body

    @property
    def _running(self) -> StreamTranslation:
        if self._stream is None:
            self._stream = self._translation.stream()
        return self._stream

    def _headers(self, call: Call, terms: Terms) -> CIMultiDict[str]:
        """Headers of our own: those of the client speak another protocol. Who it is may be known, its key may not."""
        preset = terms.preset
        known = {name.lower(): value for name, value in call.request.headers}
        headers = CIMultiDict({"content-type": "application/json", **preset.headers})
        headers["accept"] = "text/event-stream" if self._streamed else "application/json"
        if "user-agent" in known:
            headers["user-agent"] = known["user-agent"]
        key = terms.key or terms.translation_key
        if key is None and preset.key_variable:
            raise BadInput(
                f"The provider {call.binding!r} has no key for requests of another protocol: a client's is not "
                f"sent to another company. Set apiKey for it, or {preset.key_variable} in the environment."
            )
        _set_key(headers, preset, key)
        _set_affinity(headers, preset, call)
        return headers


def passage(call: Call, terms: Terms) -> Passage:
    """Return how a request passes. Raises BadInput for what cannot be carried."""
    return Relayed(call, terms) if terms.relays(call.request) else Translated(call, terms)


def _asks_on_behalf(request: InferenceRequest, preset: Preset) -> bool:
    """Whether usage must be asked for, and hidden from a client that did not ask."""
    if request.protocol is not Protocol.CHAT or not request.facts.stream or Quirk.NO_STREAM_USAGE in preset.quirks:
        return False
    return not asks_for_usage(request.body)


def _same_body(request: InferenceRequest, model: str) -> tuple[bytes, str]:
    """Return the bytes to send and their encoding: those received, unless the model has another name upstream."""
    if model == request.facts.model:
        encoding = next((value for name, value in request.headers if name.lower() == "content-encoding"), "")
        return request.wire_body, encoding
    start, end = request.facts.model_span
    return request.body[:start] + encode(model) + request.body[end:], ""


def _set_key(headers: CIMultiDict[str], preset: Preset, key: str | None) -> None:
    """Sign the request with the provider's key; without one, what is there stays."""
    if key is not None:
        headers[preset.key_header] = preset.key_prefix + key


def _set_affinity(headers: CIMultiDict[str], preset: Preset, call: Call) -> None:
    """Name the thread to a provider that routes by it, unless the client did."""
    thread = thread_key(call.request.facts.caller, call.model)
    if preset.affinity_header and thread is not None and not headers.get(preset.affinity_header):
        headers[preset.affinity_header] = thread
