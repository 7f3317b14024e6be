"""An answer as it is written: python examples/stream.py [base_url]."""

import asyncio
import sys

from cachegate.sdk import AsyncClient, Completed, TextDelta


async def main(*base_url: str) -> None:
    """Print the pieces of an answer."""
    async with AsyncClient(*base_url) as client:
        chat = client.chat("synthetic/cache")
        async for event in chat.stream("Tell me a story."):
            match event:
                case TextDelta(text):
                    print(text, end="", flush=True)
                case Completed(answer):
                    print("\ninput tokens read from the cache:", answer.tokens.cached)


asyncio.run(main(*sys.argv[1:]))
