"""A stable name of a caller's thread, for providers that route by one to find their cache again.

It must be the same after a restart of the gateway, or the provider's cache is lost with it; so it is a plain digest of
the client's own id, and no keyed one. Providers that speak the client's protocol get that id anyway.
"""

from blake3 import blake3

KEY_CHARS = 32
"""OpenAI takes 64, xAI any, OpenRouter 256."""


def thread_key(caller: str | None, model: str) -> str | None:
    """Return the key of a thread and model; None for an anonymous caller."""
    if caller is None:
        return None
    return blake3(f"{caller}\n{model}".encode("utf-8", "surrogatepass")).hexdigest()[:KEY_CHARS]
