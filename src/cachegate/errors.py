"""The errors a caller can be told about, without the shape of any protocol.

    GatewayError
    ├── BadInput          the request itself is wrong; nothing was sent anywhere
    ├── Unroutable        no configured provider can take the request
    ├── UpstreamError     the provider could not be reached, broke off, or sent nonsense
    │   └── UpstreamTimeout   the provider stayed silent too long
    └── Unavailable       the gateway is full or shutting down
    ConfigError           the configuration, not a request, is wrong (it lists every problem)

`wire/` gives each kind its protocol's own words. This module imports nothing, so that every room may raise its errors.
"""

from enum import StrEnum


class ErrorKind(StrEnum):
    """What went wrong, as far as a caller needs to know it; `wire/*/errors.py` has a row for each."""

    INVALID = "invalid"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    METHOD = "method"
    TOO_LARGE = "too_large"
    ENCODING = "encoding"
    UPGRADE = "upgrade"
    INTERNAL = "internal"
    UPSTREAM = "upstream"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"


HTTP_STATUS = {
    ErrorKind.INVALID: 400,
    ErrorKind.UNAUTHORIZED: 401,
    ErrorKind.FORBIDDEN: 403,
    ErrorKind.NOT_FOUND: 404,
    ErrorKind.METHOD: 405,
    ErrorKind.TOO_LARGE: 413,
    ErrorKind.ENCODING: 415,
    ErrorKind.UPGRADE: 426,
    ErrorKind.INTERNAL: 500,
    ErrorKind.UPSTREAM: 502,
    ErrorKind.UNAVAILABLE: 503,
    ErrorKind.TIMEOUT: 504,
}


class GatewayError(Exception):
    """An answer of the gateway's own. The message says what happened, where, the offending value and the remedy."""

    kind = ErrorKind.INTERNAL

    def __init__(self, message: str, kind: ErrorKind | None = None) -> None:
        super().__init__(message)
        self.message = message
        if kind is not None:
            self.kind = kind

    @property
    def status(self) -> int:
        """HTTP status of the answer."""
        return HTTP_STATUS[self.kind]


class BadInput(GatewayError):  # noqa: N818 -- it reads as what it is at every raise
    """The request is wrong in itself."""

    kind = ErrorKind.INVALID


class Unroutable(GatewayError):  # noqa: N818 -- as above
    """No provider can take the request."""

    kind = ErrorKind.INVALID


class UpstreamError(GatewayError):
    """The provider could not be reached or broke off."""

    kind = ErrorKind.UPSTREAM


class UpstreamTimeout(UpstreamError):  # noqa: N818 -- as above
    """The provider stayed silent longer than allowed."""

    kind = ErrorKind.TIMEOUT


class Unavailable(GatewayError):  # noqa: N818 -- as above
    """The gateway takes no more requests just now."""

    kind = ErrorKind.UNAVAILABLE


class ConfigError(Exception):
    """Every problem of a configuration at once; each line names the key and the remedy."""

    def __init__(self, source: str, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join((f"{source}:", *(f"  - {problem}" for problem in problems))))
        self.source = source
        self.problems = problems
