"""Which headers travel: from the client to a provider, and from a provider to the client.

Unknown headers pass. What never passes: hop-by-hop headers and those a `Connection` header names, what only makes sense
between two neighbours, cookies, and the gateway's own keys.
"""

from collections.abc import Iterable

Headers = tuple[tuple[str, str], ...]

GATEWAY_KEY_HEADER = "x-cachegate-key"
CONTEXT_FULL_HEADER = "x-cachegate-context-full"
"""Stands, with the value `true`, on an error answer that was read as a full context, in whatever words it came."""
CREDENTIALS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})
"""Headers in which clients send a provider's key."""

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
     "transfer-encoding", "upgrade", "http2-settings"}
)  # fmt: skip
_NOT_UP = _HOP_BY_HOP | {
    "host", "content-length", "content-encoding", "accept-encoding", "expect", "cookie", "forwarded", "via",
    "origin", "referer",
}  # fmt: skip
_NOT_DOWN = _HOP_BY_HOP | {
    "content-length", "content-encoding", "date", "server", "set-cookie", "alt-svc", "strict-transport-security",
}  # fmt: skip
_NOT_UP_PREFIXES = ("x-forwarded-", "sec-fetch-", "x-harness-cache-recovery", "x-cachegate-")


def to_upstream(headers: Headers, *, keep_credentials: bool) -> Headers:
    """Return the client's headers that go to the provider, in their order and spelling."""
    dropped = _NOT_UP | _named_by_connection(headers) | (frozenset() if keep_credentials else CREDENTIALS)
    return tuple(
        (name, value)
        for name, value in headers
        if (lower := name.lower()) not in dropped and not lower.startswith(_NOT_UP_PREFIXES)
    )


def to_client(headers: Iterable[tuple[str, str]]) -> Headers:
    """Return the provider's headers that go to the client; bytes that are no UTF-8 become question marks."""
    listed = tuple((name, value.encode("utf-8", "replace").decode()) for name, value in headers)
    dropped = _NOT_DOWN | _named_by_connection(listed)
    return tuple((name, value) for name, value in listed if name.lower() not in dropped)


def _named_by_connection(headers: Headers) -> frozenset[str]:
    values = (value for name, value in headers if name.lower() == "connection")
    return frozenset(token.strip().lower() for value in values for token in value.split(","))
