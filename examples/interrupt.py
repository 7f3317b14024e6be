"""Enough said: python examples/interrupt.py [base_url]."""

import sys

from cachegate.sdk import Client, Interrupted, TextDelta

with Client(*sys.argv[1:]) as client:
    chat = client.chat("synthetic/hang")
    try:
        for event in chat.stream("Tell me everything."):
            if isinstance(event, TextDelta):
                print("heard:", event.text)
                chat.interrupt()  # usually from another thread, such as that of a button
    except Interrupted as interrupted:
        print("interrupted, and kept:", interrupted.text)
    print("messages in the history:", len(chat.history))
