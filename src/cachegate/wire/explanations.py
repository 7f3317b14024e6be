"""Why the cache missed, in the provider's own word, where it says so because the client asked.

Kept beside the gateway's own explanation and never an excuse: it is best effort, can come late, and can be missing.
"""

from cachegate.wire.seen import Explained, Seen, word
from cachegate.wire.usage_readings import Fields, fields


def anthropic_explanation(message: Fields) -> tuple[Seen, ...]:
    """Read `diagnostics.cache_miss_reason.type` of a message; pending, absent and null say nothing."""
    reason = fields(fields(message.get("diagnostics")).get("cache_miss_reason"))
    return (Explained(word(reason["type"])),) if "type" in reason else ()


def openai_explanation(response: Fields) -> tuple[Seen, ...]:
    """Read `prompt_cache_diagnostics` of a response: the reason of a miss, else the type."""
    told = fields(response.get("prompt_cache_diagnostics"))
    said = told.get("reason") or told.get("type")
    return (Explained(word(said)),) if said is not None else ()
