"""Who may ask: client keys, `Host` and `Origin`.

A gateway on one's own machine is reachable from every web page that person opens. Therefore a foreign `Origin` is
refused always, and a foreign `Host` (a rebound DNS name) wherever no key protects the path.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from blake3 import blake3

from cachegate.errors import ErrorKind, GatewayError
from cachegate.providers.address import is_loopback
from cachegate.providers.headers import GATEWAY_KEY_HEADER, Headers

_KEY_HEADERS = (GATEWAY_KEY_HEADER, "authorization", "x-api-key")


def _digest(key: str) -> bytes:
    return blake3(key.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True)
class Access:
    """The configured clients and names."""

    clients: Mapping[str, str] = field(repr=False)
    """Key by client name; empty when everybody on this machine may ask."""
    hosts: frozenset[str]
    """Names that `Host` may hold, without port, beside those of the loopback."""
    origins: frozenset[str]

    def admit(self, headers: Headers) -> tuple[str, Headers]:
        """Return the tenant and the headers without any of the gateway's keys. Raises GatewayError (401, 403)."""
        self._check_origin(headers)
        if not self.clients:
            self._check_host(headers)
            return "", headers
        keys = [(name.lower() in _KEY_HEADERS and self._tenant(value)) or None for name, value in headers]
        tenant = next((found for found in keys if found is not None), None)
        if tenant is not None:
            return tenant, tuple(header for header, key in zip(headers, keys, strict=True) if key is None)
        raise GatewayError(
            "This gateway needs a client key and the request holds no valid one. Send it as x-cachegate-key, as a "
            "Bearer token or as x-api-key.",
            ErrorKind.UNAUTHORIZED,
        )

    def admit_admin(self, headers: Headers, peer: str) -> None:
        """Let in whoever is on this machine or has a client key. Raises GatewayError (401, 403)."""
        self._check_origin(headers)
        if is_loopback(peer):
            self._check_host(headers)
        else:
            self.admit(headers)

    def _tenant(self, value: str) -> str | None:
        """Look a key up in the same time whether it is known or not."""
        scheme, _, token = value.partition(" ")
        given = _digest(token.strip() if scheme.lower() == "bearer" and token else value.strip())
        found = None
        for name, key in self.clients.items():
            if hmac.compare_digest(given, _digest(key)):
                found = name
        return found

    def _check_host(self, headers: Headers) -> None:
        hosts = [value for name, value in headers if name.lower() == "host"]
        if len(hosts) != 1 or not self._known(_host_name(hosts[0])):
            raise GatewayError(
                "The Host header names another machine. Use the address that the gateway printed, or add the name "
                "to allowedHosts.",
                ErrorKind.FORBIDDEN,
            )

    def _check_origin(self, headers: Headers) -> None:
        origins = [value for name, value in headers if name.lower() == "origin"]
        sites = [value for name, value in headers if name.lower() == "sec-fetch-site"]
        if any(origin not in self.origins for origin in origins) or (not origins and "cross-site" in sites):
            raise GatewayError(
                "The request comes from a web page of another origin. Add the origin to allowedOrigins if it is yours.",
                ErrorKind.FORBIDDEN,
            )

    def _known(self, host: str) -> bool:
        return host in {"localhost", "127.0.0.1", "[::1]"} or host in self.hosts


def _host_name(host: str) -> str:
    """Return the name of a `Host` header without its port; anything odd stays odd and is refused."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isascii() and port.isdigit() else host.lower()
