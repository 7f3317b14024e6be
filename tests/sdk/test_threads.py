"""Threads as lists show them."""

from cachegate.sdk import Tokens
from cachegate.sdk.threads import thread_of


def test_a_thread_is_read() -> None:
    usage = {"last": {}, "total": {"inputTokens": 5}}
    thread = thread_of({"id": "t", "name": "n", "model": "m", "createdAt": 1, "status": "active", "tokenUsage": usage})
    assert (thread.id, thread.name, thread.model, thread.created_s, thread.updated_s) == ("t", "n", "m", 1, None)
    assert (thread.active, thread.context_full, thread.usage.total) == (True, False, Tokens(input=5))
    assert thread_of({"name": 7}).name is None
