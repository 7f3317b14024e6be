"""A client library for the gateway: chats that know a cache stop from a full context, and repeat nothing.

Law of this room: imports itself, the standard library and aiohttp's client; never a server's parts, nor another room.
It speaks the gateway's public protocols, like any other client, and therefore knows their field names itself. Its
public names stand here, because they are its door.
"""

from cachegate.sdk.blocking import Chat, Client, HostedChat
from cachegate.sdk.chat import AsyncChat
from cachegate.sdk.client import AsyncClient
from cachegate.sdk.conversation import Image, Input, Text
from cachegate.sdk.errors import (
    BrokenAnswer,
    Busy,
    CachegateError,
    CacheStop,
    Closed,
    ContextFull,
    Interrupted,
    ProviderError,
    ToolRoundsExceeded,
    Unreachable,
)
from cachegate.sdk.events import (
    Answer,
    Compacted,
    Completed,
    Event,
    TextDelta,
    ThoughtDelta,
    Tokens,
    ToolAnswered,
    ToolCalled,
    Usage,
    UsageUpdated,
)
from cachegate.sdk.hosted_chat import AsyncHostedChat
from cachegate.sdk.threads import Thread
from cachegate.sdk.tools import Tool

__all__ = [
    "Answer",
    "AsyncChat",
    "AsyncClient",
    "AsyncHostedChat",
    "BrokenAnswer",
    "Busy",
    "CacheStop",
    "CachegateError",
    "Chat",
    "Client",
    "Closed",
    "Compacted",
    "Completed",
    "ContextFull",
    "Event",
    "HostedChat",
    "Image",
    "Input",
    "Interrupted",
    "ProviderError",
    "Text",
    "TextDelta",
    "ThoughtDelta",
    "Thread",
    "Tokens",
    "Tool",
    "ToolAnswered",
    "ToolCalled",
    "ToolRoundsExceeded",
    "Unreachable",
    "Usage",
    "UsageUpdated",
]
