"""Hosted chats as lists show them. Pure."""

from dataclasses import dataclass

from cachegate.sdk.answer_stream import count
from cachegate.sdk.events import Usage
from cachegate.sdk.frames import Params
from cachegate.sdk.hosted_turn import usage_of


@dataclass(frozen=True, slots=True)
class Thread:
    """A hosted chat; `client.resume(thread.id)` opens it."""

    id: str
    name: str | None
    model: str
    created_s: int | None
    """Unix time."""
    updated_s: int | None
    """Unix time."""
    active: bool
    """A turn runs."""
    context_full: bool
    usage: Usage


def thread_of(shown: Params) -> Thread:
    """Return a thread as the control socket shows it."""
    name = shown.get("name")
    return Thread(
        id=str(shown.get("id")),
        name=name if isinstance(name, str) else None,
        model=str(shown.get("model")),
        created_s=count(shown.get("createdAt")),
        updated_s=count(shown.get("updatedAt")),
        active=shown.get("status") == "active",
        context_full=shown.get("contextFull") is True,
        usage=usage_of(shown.get("tokenUsage")),
    )
