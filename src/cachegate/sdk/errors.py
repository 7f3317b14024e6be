"""What can go wrong, in one tree. Nothing here was repeated by the SDK; whether to send again is the caller's decision.

CachegateError
├── CacheStop           the gateway stopped the request before it reached the provider; it cost nothing
├── ContextFull         the conversation no longer fits into the model's context; a compaction helps
├── ProviderError       the gateway or the provider answered with an error
├── Unreachable         no connection to the gateway; nothing was sent
├── BrokenAnswer        the answer broke off or made no sense; the request may have been processed and paid for
├── Interrupted         `interrupt()` ended the turn
├── ToolRoundsExceeded  the model kept calling tools
├── Busy                the chat runs a turn already
└── Closed              the client was closed
"""


class CachegateError(Exception):
    """Any error of the SDK; `words` are meant for a person."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


class CacheStop(CachegateError):  # noqa: N818 -- it reads as what it is at every except
    """Too many large requests in a row did not reuse the provider's prompt cache.

    Waiting `wait_s` seconds without sending anything, a compaction, or a conversation of at most half the size goes on.
    """

    def __init__(self, words: str, reason: str | None, count: int | None, wait_s: float | None) -> None:
        super().__init__(words)
        self.reason = reason
        """`measured` or `unreported`; None when the gateway did not say."""
        self.count = count
        """How many requests were counted; None when unknown."""
        self.wait_s = wait_s
        """Seconds of silence after which the conversation may go on; None when unknown."""


class ContextFull(CachegateError):  # noqa: N818 -- as above
    """The conversation no longer fits. `chat.compact()` replaces it by a summary."""


class ProviderError(CachegateError):
    """An error answer, of the gateway or of the provider behind it."""

    def __init__(self, words: str, status: int | None = None, code: str | None = None) -> None:
        about = ", ".join(str(part) for part in (status, code) if part is not None)
        super().__init__(f"{words} ({about})" if about else words)
        self.words = words
        self.status = status
        """HTTP status; None for a failure on an open stream."""
        self.code = code
        """The provider's code or type of the error; None when it gave none."""


class Unreachable(CachegateError):  # noqa: N818 -- as above
    """The gateway could not be reached. Nothing was sent."""


class BrokenAnswer(CachegateError):  # noqa: N818 -- as above
    """The answer did not come to its end. What was sent may have been processed."""


class Interrupted(CachegateError):  # noqa: N818 -- as above
    """The turn was interrupted; the history keeps the user's message and `text`."""

    def __init__(self, text: str = "") -> None:
        super().__init__("The turn was interrupted.")
        self.text = text
        """What the model had said since its last tool round."""


class ToolRoundsExceeded(CachegateError):  # noqa: N818 -- as above
    """One turn called tools more often than allowed. The rounds stay in the history; `send(())` goes on."""


class Busy(CachegateError):  # noqa: N818 -- as above
    """One chat runs one turn at a time."""


class Closed(CachegateError):  # noqa: N818 -- as above
    """The client was closed; open a new one."""
