"""Who is calling, and for which of its budgets (R2, R4): the quirks of real clients, as rows.

The rows come from requests recorded from Codex 0.171, Claude Code 2.1, opencode 1.18, Copilot CLI 1.0 and Grok 1.0.
To teach the gateway a client, add rows; the code below them only walks the tables. An empty id is no id.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from cachegate.wire.body import JsonObject, decode, member
from cachegate.wire.facts import Facts, Operation, RequestClass, Sender

THREAD_HEADER = "x-cachegate-thread-id"
"""Names the thread of a request, for programs that have no header of their own for it."""
CLASS_HEADER = "x-cachegate-request-class"
"""Names the class of a request: `compaction` belongs to the compaction budget (R4)."""
ID_CHARS_MAX = 512
"""Longer ids are cut: they are only ever hashed, and no client sends one."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, as far as its sender and purpose can be read from it."""

    sender: Sender
    body: JsonObject
    operation: Operation
    instructions: bytes
    """The instructions as they stand in the body: the top-level ones, else an item of that role before all others."""
    last_item: bytes
    """The last item of the conversation as it stands in the body."""

    def turn(self, name: str) -> str:
        """Return a field of Codex's turn metadata, from the header or, where that was stripped, the body."""
        text = self.sender.header("x-codex-turn-metadata") or _text(self.client_metadata("x-codex-turn-metadata"))
        return _text(member(decode(text.encode()), name))

    def client_metadata(self, name: str) -> object:
        """Return a field of Codex's `client_metadata`."""
        return member(self.body.value("client_metadata"), name)

    def ends_with(self, *markers: bytes) -> bool:
        """Whether the last item of the conversation holds every marker.

        A marker with a quote begins a text; where a text merely quotes it, the quote is escaped.
        """
        item = self.last_item
        return all(marker in item and item.count(marker) > item.count(b"\\" + marker) for marker in markers)

    @property
    def has_tools(self) -> bool:
        """Whether any tool is declared."""
        return self.body.raw("tools")[:2] not in {b"", b"[]"}


Source = Callable[[Asked], str]


def _header(name: str) -> Source:
    return lambda asked: asked.sender.header(name)


def _window_thread(asked: Asked) -> str:
    """`x-codex-window-id: <thread>:<n>`."""
    return asked.sender.header("x-codex-window-id").rpartition(":")[0]


def _metadata_session(asked: Asked) -> str:
    """Claude Code's `metadata.user_id`: JSON with a session id, or the older `user_..._session_<id>`."""
    user_id = _text(member(asked.body.value("metadata"), "user_id"))
    as_json = decode(user_id.encode())
    if as_json is not None:
        return _text(member(as_json, "session_id"))
    _, found, session = user_id.rpartition("_session_")
    return session if found else ""


def _conversation(asked: Asked) -> str:
    """Return the id of the Conversations API, given as such or inside an object."""
    value = asked.body.value("conversation")
    return _text(value) or _text(member(value, "id"))


IDENTITIES: tuple[tuple[str, tuple[Source, ...], tuple[Source, ...]], ...] = (
    # name of the client, sources of its thread or session id, sources of a sub-agent's id inside the session
    # our own SDK, and the chats that the control socket hosts
    ("cachegate", (_header(THREAD_HEADER),), ()),
    (
        "claude-code",
        (_header("x-claude-code-session-id"), _metadata_session),
        (_header("x-claude-code-agent-id"),),
    ),
    # Codex repeats the root's session id and prompt_cache_key on its sub-agents; only the thread tells them apart.
    (
        "codex",
        (
            _header("thread-id"),
            _window_thread,
            lambda asked: _text(asked.client_metadata("thread_id")),
            lambda asked: asked.turn("thread_id"),
        ),
        (),
    ),
    ("grok", (_header("x-grok-conv-id"), _header("x-grok-session-id")), ()),
    ("session", (_header("x-session-id"), _header("x-session-affinity")), ()),
    ("session-id", (_header("session-id"), _header("session_id"), _header("conversation_id")), ()),
    ("conversation", (_conversation,), ()),
    ("prompt-cache-key", (lambda asked: asked.body.text("prompt_cache_key") or "",), ()),
)

CLASSIFIER = "classifier"
"""Identity of the permission classifier: one auxiliary budget per account and model (R4)."""

_Test = Callable[[Asked], bool]

CLASSIFIERS: tuple[_Test, ...] = (
    # Claude Code's and Desktop's own: about 145 kB even on an empty chat
    lambda asked: (
        not asked.has_tools and b"You are a security monitor for autonomous AI coding agents." in asked.instructions
    ),
    # what it asks Anthropic's classifier: to judge a sub-agent's work it sends the whole conversation, with its tools
    lambda asked: "auto-mode-classifier-" in asked.sender.header("anthropic-beta"),
    lambda asked: asked.body.raw("max_tokens") == b"0" and asked.body.raw("safeguards")[:2] not in {b"", b"[]"},
)
"""The permission classifier. The turns of a chat bring `safeguards`, too, where the server checks them on the way."""

_AUXILIARY_CLASSES = frozenset({"auxiliary", "side_reply"})

CLASSES: tuple[tuple[RequestClass, _Test], ...] = (
    # compaction, as the client names it
    (RequestClass.COMPACTION, lambda asked: asked.operation is Operation.COMPACT),
    (RequestClass.COMPACTION, lambda asked: asked.sender.header(CLASS_HEADER) == "compaction"),
    (RequestClass.COMPACTION, lambda asked: asked.sender.header("x-claude-code-request-class") == "compaction"),
    (RequestClass.COMPACTION, lambda asked: asked.sender.header("x-claude-code-compaction") != ""),
    (RequestClass.COMPACTION, lambda asked: asked.sender.header("x-openai-subagent") == "compact"),
    (RequestClass.COMPACTION, lambda asked: asked.turn("request_kind") == "compaction"),
    (RequestClass.COMPACTION, lambda asked: asked.sender.header("x-interaction-type") == "conversation-compaction"),
    # compaction, by what it says
    (RequestClass.COMPACTION, lambda asked: asked.ends_with(b'"compaction_trigger"')),
    (RequestClass.COMPACTION, lambda asked: asked.ends_with(b'"You are performing a CONTEXT CHECKPOINT COMP')),
    (
        RequestClass.COMPACTION,
        lambda asked: asked.ends_with(b'"CRITICAL: Respond with TEXT ONLY.', b"create a detailed summary"),
    ),
    (
        RequestClass.COMPACTION,
        lambda asked: not asked.has_tools and b"You are a context summarization agent" in asked.instructions,
    ),
    # titles, summaries of a turn, probes and side questions
    (RequestClass.AUXILIARY, lambda asked: asked.sender.header("x-claude-code-request-class") in _AUXILIARY_CLASSES),
    (RequestClass.AUXILIARY, lambda asked: asked.turn("thread_source") == "thread_title"),
    (RequestClass.AUXILIARY, lambda asked: asked.sender.header("x-openai-memgen-request") == "true"),
    (RequestClass.AUXILIARY, lambda asked: asked.sender.headers.get("x-grok-conv-id") == ""),
    (RequestClass.AUXILIARY, lambda asked: asked.sender.header("x-grok-req-id").startswith("xai-turn-summary")),
    (
        RequestClass.AUXILIARY,
        lambda asked: not asked.has_tools and b"You are a title generator" in asked.instructions,
    ),
    (RequestClass.AUXILIARY, lambda asked: not asked.has_tools and b'"title"' in asked.body.raw("output_config")),
    (RequestClass.AUXILIARY, lambda asked: asked.body.raw("max_tokens") == b"1"),
)


def identify(asked: Asked) -> tuple[str | None, RequestClass]:
    """Return the caller's identity, None for an anonymous one, and the class of the request."""
    if any(test(asked) for test in CLASSIFIERS):
        return CLASSIFIER, RequestClass.AUXILIARY
    request_class = next((cls for cls, test in CLASSES if test(asked)), RequestClass.CHAT)
    for name, sources, parts in IDENTITIES:
        found = _first(sources, asked)
        if found:
            part = _first(parts, asked)
            return (f"{name}:{found}/{part}" if part else f"{name}:{found}"), request_class
    return None, request_class


def as_classifier(facts: Facts) -> Facts:
    """Return the facts of a request that only classifies.

    Its first message holds what is to be classified, and no project's instructions: another one is no change of the
    client's that the guard would excuse (R15).
    """
    fingerprint = replace(facts.fingerprint, opening=b"")
    return replace(facts, caller=CLASSIFIER, request_class=RequestClass.AUXILIARY, fingerprint=fingerprint)


def _first(sources: tuple[Source, ...], asked: Asked) -> str:
    return next((found for source in sources if (found := source(asked).strip()[:ID_CHARS_MAX])), "")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
