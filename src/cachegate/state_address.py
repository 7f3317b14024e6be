"""The address of a Redis or Valkey that several gateways share, as a configuration writes it.

Its credentials are for the connection only: neither `str` nor `repr` of an address has them, and no error quotes them.
"""

from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

SCHEMES = {
    # scheme: (over TLS, a cluster)
    "redis": (False, False),
    "rediss": (True, False),
    "valkey": (False, False),
    "valkeys": (True, False),
    "redis+cluster": (False, True),
    "rediss+cluster": (True, True),
    "valkey+cluster": (False, True),
    "valkeys+cluster": (True, True),
    "unix": (False, False),
}
PORT = 6379
DATABASE_MAX = 1_023
"""Servers have 16 databases unless told otherwise; nobody has more than a thousand."""
_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_OPTIONS = ("cluster", "ca", "db")
_EXAMPLE = "such as redis://127.0.0.1:6379/0, rediss://user:${PASSWORD}@redis.example or unix:///run/redis.sock"


@dataclass(frozen=True, slots=True)
class StateAddress:
    """Where the shared state is."""

    host: str = ""
    port: int = PORT
    path: str = ""
    """Of a socket on this machine; then there is no host."""
    database: int = 0
    tls: bool = False
    cluster: bool = False
    authority_file: str | None = None
    """PEM file of the authority that signed the server's certificate; the system's own without one."""
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        where = self.path or f"{self.host}:{self.port}"
        kind = "a Redis Cluster" if self.cluster else "Redis"
        return f"{kind} at {where}{' over TLS' if self.tls else ''}"


def parse_state_address(text: str) -> StateAddress:
    """Read an address. Raises ValueError with a remedy, and without a word of the address but its scheme."""
    parts = _split(text)
    if parts.scheme not in SCHEMES:
        raise ValueError(f"must be `local`, `memory` or an address, {_EXAMPLE}")
    tls, cluster = SCHEMES[parts.scheme]
    options = _options(parts)
    cluster = _flag(options.get("cluster", "true" if cluster else "false"))
    authority, database = options.get("ca"), _database(parts, options)
    if authority is not None and not tls:
        raise ValueError("`ca` says who signed a certificate, so it goes with rediss:// or valkeys:// only")
    if cluster and database:
        raise ValueError("a Redis Cluster has database 0 only. Leave the number out")
    name, secret = parts.username, parts.password
    return StateAddress(
        host=parts.hostname or ("" if parts.scheme == "unix" else "127.0.0.1"),
        port=parts.port or PORT,
        path=_socket(parts),
        database=database,
        tls=tls,
        cluster=cluster,
        authority_file=authority,
        username=unquote(name) if name else None,
        password=unquote(secret) if secret else None,
    )


def _split(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise ValueError(f"is no address that can be read. Write one {_EXAMPLE}") from None
    return parts


def _options(parts: SplitResult) -> dict[str, str]:
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    if unknown := sorted(options.keys() - set(_OPTIONS)):
        raise ValueError(f"has options that mean nothing here: {', '.join(unknown)}. Known are {', '.join(_OPTIONS)}")
    return options


def _flag(value: str) -> bool:
    if value.lower() not in _FLAGS:
        raise ValueError("`cluster` must be true or false")
    return _FLAGS[value.lower()]


def _socket(parts: SplitResult) -> str:
    if parts.scheme != "unix":
        return ""
    if parts.hostname or not parts.path.startswith("/"):
        raise ValueError("needs the whole path of the socket, such as unix:///run/redis.sock")
    return unquote(parts.path)


def _database(parts: SplitResult, options: dict[str, str]) -> int:
    written = options.get("db", "" if parts.scheme == "unix" else parts.path.strip("/")) or "0"
    if not written.isdecimal() or int(written) > DATABASE_MAX:
        raise ValueError(f"names a database that is no number up to {DATABASE_MAX}")
    return int(written)
