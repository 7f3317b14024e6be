"""What a program that the gateway starts gets of the gateway's environment."""

from collections.abc import Mapping

_KEPT_VARIABLES = (
    "PATH", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS", "LANG", "SYSTEMROOT",
)  # fmt: skip


def kept(environ: Mapping[str, str]) -> dict[str, str]:
    """Return where things are, and nothing that is a key: a provider's program is to find no credentials of others."""
    return {name: environ[name] for name in _KEPT_VARIABLES if name in environ}
