"""A chat that lives in the gateway, and a program that comes back to it: python examples/hosted.py [base_url]."""

import sys

from cachegate.sdk import Client, Completed, TextDelta

with Client(*sys.argv[1:]) as client:
    chat = client.hosted_chat("synthetic/cache", name="example")
    for event in chat.stream("Tell me a story."):
        if isinstance(event, TextDelta):
            print("heard:", event.text)
            break  # the turn goes on without us
    thread_id, cursor = chat.id, chat.cursor

with Client(*sys.argv[1:]) as client:
    print("threads:", ", ".join(f"{thread.name} ({thread.model})" for thread in client.threads()))
    chat = client.resume(thread_id, cursor=cursor)
    for event in chat.follow():
        match event:
            case TextDelta(text):
                print("missed:", text)
            case Completed(answer):
                print("answer:", answer.text)
    client.delete(thread_id)
