"""A conversation: python examples/chat.py [base_url]."""

import sys

from cachegate.sdk import Client

with Client(*sys.argv[1:]) as client:
    chat = client.chat("synthetic/cache", instructions="You are a friendly guide to Rome.")
    for question in ("Where should I begin?", "And in the evening?"):
        print("you:  ", question)
        print("model:", chat.send(question).text)
    print("tokens so far:", chat.usage.total.total)
