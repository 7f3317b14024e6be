"""Whether an upstream address is this machine or a peer of this tailnet (R11): the precondition of `selfHosted`.

It shows that a request stays on machines of one's own. It does not show that the server there is no proxy to a metered
provider, and 100.64.0.0/10 is carrier NAT space too; therefore the setting is never inferred, only refused.
"""

import ipaddress
import socket
from collections.abc import Callable, Sequence

from yarl import URL

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Sequence[str]]

_ALLOWED = tuple(
    ipaddress.ip_network(net) for net in ("127.0.0.0/8", "::1/128", "100.64.0.0/10", "fd7a:115c:a1e0::/48")
)
_RESERVED = tuple(
    ipaddress.ip_network(net)
    # the tailnet's own services and resolver, and ChromeOS, live inside the peers' range
    for net in ("100.100.0.0/24", "100.100.100.0/24", "100.115.92.0/23", "fd7a:115c:a1e0::53/128")
)


class NotSelfHosted(ValueError):  # noqa: N818 -- it reads as what it is
    """An address that `selfHosted` does not accept; the message names it and the remedy."""


def resolve(host: str, port: int) -> Sequence[str]:
    """Return every address of a name. Raises OSError when it has none."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def pinned_addresses(url: URL, lookup: Resolve = resolve) -> tuple[str, ...]:
    """Return the addresses that connections to `url` must use. Raises NotSelfHosted unless every one is allowed."""
    host = url.host
    if not host or url.user or url.password or "%" in host:
        raise NotSelfHosted(f"{url.with_user(None)} needs a plain host name or address, without user or zone")
    if url.scheme not in {"http", "https"}:
        raise NotSelfHosted(f"{url} must be http or https")
    try:
        addresses: Sequence[str] = (str(ipaddress.ip_address(host)),)
    except ValueError:
        if _looks_numeric(host):
            raise NotSelfHosted(f"{host} is no address in its usual form; write it as four numbers") from None
        try:
            addresses = lookup(host, url.port or 443)
        except OSError as error:
            raise NotSelfHosted(f"{host} cannot be resolved ({error}); use an address of this machine") from None
    foreign = [address for address in addresses if not _allowed(address)]
    if foreign or not addresses:
        raise NotSelfHosted(
            f"{host} is {', '.join(foreign) or 'no address'}, which is neither this machine (127.0.0.0/8, ::1) nor a "
            "tailnet peer (100.64.0.0/10, fd7a:115c:a1e0::/48)"
        )
    return tuple(addresses)


def is_loopback(host: str) -> bool:
    """Whether a host literally names this machine."""
    try:
        address: Address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host.lower() == "localhost"
    return _plain(address).is_loopback


def _allowed(text: str) -> bool:
    try:
        address = _plain(ipaddress.ip_address(text))
    except ValueError:
        return False
    return any(address in net for net in _ALLOWED) and not any(address in net for net in _RESERVED)


def _plain(address: Address) -> Address:
    """Unwrap an IPv4 address mapped into IPv6."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _looks_numeric(host: str) -> bool:
    """Whether a name would be read as an address by old resolvers: decimal, octal, hex or short forms."""
    parts = host.lower().rstrip(".").split(".")
    return all(part.isdigit() or (part.startswith("0x") and len(part) > 2) for part in parts)  # noqa: PLR2004 -- "0x"
