"""A broken cache, a stop, and the way on: python examples/recovery.py [base_url]."""

import sys

from cachegate.sdk import CacheStop, Client

LARGE = "All work and no cache makes a long night. " * 9_000

with Client(*sys.argv[1:]) as client:
    chat = client.chat("synthetic/cold")  # a model whose cache is never reused
    for turn in (1, 2):
        answer = chat.send(LARGE)
        print(f"turn {turn}: {answer.tokens.input:,} tokens, {answer.tokens.cached} of them from the cache")
    try:
        chat.send("And now?")
    except CacheStop as stop:
        print(f"stopped after {stop.count} cold requests ({stop.reason}). Wait {stop.wait_s:.0f} s, or compact.")
        print("the context is full:", chat.context_full)
        compacted = chat.compact()
        print("compacted to:", compacted.summary)
        print("answer:", chat.send("And now?").text)
