"""The words a person reads when the guard stops a request (R23).

They must never contain what a client takes for a full context; `tests/guard/test_notices.py` holds them against
every known pattern. They ask for nothing but a pause, because everything else would cost another large request.
"""

from cachegate.guard.fingerprint import Cause, Change
from cachegate.guard.machine import Decision, Reason
from cachegate.guard.policy import Policy

_MEASURED = (
    "the last {count} large requests {whose} each re-processed at least {tokens:,} input tokens, "
    "because the provider's prompt cache was not being reused"
)
_UNREPORTED = (
    "the last {count} large requests {whose} were sent without proof that the prompt cache is being "
    "reused: the provider did not report its cache usage for all of them, so the real cost is unknown"
)
_ADVICE = (
    "Cachegate stopped this request before it reached the provider, so it cost nothing: {why}.{clause} "
    "Please wait {pause} without sending anything, then send one message. "
    "Each attempt during the pause restarts the wait."
)


_CAUSES = {
    Change.TOOLS: "The last time, the tools had changed.",
    Change.INSTRUCTIONS: "The last time, the instructions had changed.",
    Change.THINKING: "The last time, the thinking effort had changed.",
    Change.SPEED: "The last time, the speed setting had changed.",
    Change.HISTORY: "The last time, the conversation had been edited at item {item} of {items}.",
    Change.IDLE: "The last time, {gap} had passed since the request before.",
    Change.UNMARKED: "The client does not ask the provider to cache anything.",
    Change.UNCHANGED: "The last time, the client had changed nothing of what was sent before.",
    Change.UNKNOWN: "",
}


def stop_words(decision: Decision, policy: Policy, *, anonymous: bool = False) -> str:
    """Return the message of a stop: what happened, why, and the one thing that helps.

    `anonymous` requests name no conversation, so they cannot be spoken of as one.
    """
    why = _UNREPORTED if decision.reason is Reason.UNREPORTED else _MEASURED
    whose = "from clients that name no conversation" if anonymous else "of this conversation"
    clause = cause_words(decision.cause)
    return _ADVICE.format(
        why=why.format(count=decision.count, whose=whose, tokens=policy.large_tokens),
        clause=f" {clause}" if clause else "",
        pause=_duration(policy.idle_ms),
    )


def cause_words(cause: Cause) -> str:
    """Return one short sentence on why the cache was not reused; empty when nothing is known."""
    return _CAUSES[cause.change].format(item=cause.item, items=cause.items, gap=_duration(cause.gap_s * 1000))


def _duration(ms: int) -> str:
    seconds = -(-ms // 1000)
    if seconds % 60 == 0:
        minutes = seconds // 60
        return "1 minute" if minutes == 1 else f"{minutes} minutes"
    return "1 second" if seconds == 1 else f"{seconds} seconds"
