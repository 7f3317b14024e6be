"""The seam to a provider; `tests/contract/test_providers.py` holds every provider against it."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Protocol as Interface

from cachegate.errors import ErrorKind
from cachegate.wire.facts import InferenceRequest, Operation, Protocol
from cachegate.wire.seen import Seen


@dataclass(frozen=True, slots=True)
class Head:
    """The start of an answer; comes once, before any piece."""

    status: int
    headers: tuple[tuple[str, str], ...]
    """Headers for the client, without hop-by-hop ones."""
    terminal_error: Callable[[ErrorKind, str], bytes] | None = field(default=None, repr=False)
    """Of a stream: what ends it as failed, at whatever event it stands. For those who cut it from outside."""

    @property
    def may_go_elsewhere(self) -> bool:
        """Whether the status says that nothing was processed and another provider may be asked."""
        return self.status == 429 or 500 <= self.status < 600  # noqa: PLR2004 -- HTTP: too many requests, server errors

    @property
    def successful(self) -> bool:
        """Whether the provider began a successful answer."""
        return 200 <= self.status < 300  # noqa: PLR2004 -- the HTTP class of success


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes for the client, and what was observed with them. Of a stream, `data` is whole events only."""

    data: bytes = field(repr=False)
    seen: tuple[Seen, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """One request to a provider."""

    request: InferenceRequest
    request_id: str
    """Of this request, for errors in the client's shape."""
    binding: str
    """Configured name of the provider: another one's opaque values are foreign to it."""
    model: str
    """The model's name as the provider knows it."""
    on_sent: Callable[[], None]
    """Called when the first byte leaves. The one observation that cannot ride on a piece: a caller who leaves early
    never gets one, and whether the provider was reached decides what the guard makes of it (R19)."""
    tenant: str = ""
    """Whose key the gateway was asked with: two of them may name the same thread, and are strangers all the same."""


class Provider(Interface):
    """Answers requests."""

    def speaks(self, protocol: Protocol, operation: Operation) -> bool:
        """Whether this provider takes such requests."""

    def stream(self, call: Call) -> AsyncGenerator[Head | Piece, None]:
        """Yield one `Head`, then pieces. Closing the generator stops the upstream at once.

        Raises UpstreamError or UpstreamTimeout while nothing was yielded yet. A later failure is no exception but a
        last piece that holds the protocol's terminal error and `Failed`.
        """

    def models(self) -> tuple[str, ...]:
        """Names of models to list, as the provider knows them."""

    async def close(self) -> None:
        """Release connections."""
