"""What the HTTP status of a provider's error says, in whatever protocol it comes."""

from collections.abc import Mapping

from cachegate.errors import ErrorKind

KINDS: Mapping[int, ErrorKind] = {
    401: ErrorKind.UNAUTHORIZED,
    402: ErrorKind.FORBIDDEN,
    403: ErrorKind.FORBIDDEN,
    404: ErrorKind.NOT_FOUND,
    405: ErrorKind.METHOD,
    408: ErrorKind.TIMEOUT,
    413: ErrorKind.TOO_LARGE,
    415: ErrorKind.ENCODING,
    429: ErrorKind.UNAVAILABLE,
    503: ErrorKind.UNAVAILABLE,
    504: ErrorKind.TIMEOUT,
    529: ErrorKind.UNAVAILABLE,
}
"""The statuses that say more than whose fault it is. 529 is Anthropic's, for an overload."""

_FIRST_CLIENT_STATUS, _FIRST_SERVER_STATUS = 400, 500


def kind_of(status: int) -> ErrorKind:
    """Return what a status says: any that is not known is the request's fault from 400 on, the provider's from 500."""
    fault = _FIRST_CLIENT_STATUS <= status < _FIRST_SERVER_STATUS
    return KINDS.get(status, ErrorKind.INVALID if fault else ErrorKind.UPSTREAM)
