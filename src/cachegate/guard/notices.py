"""The words a person reads when the guard stops a request (R23).

They must never contain what a client takes for a full context; `tests/guard/test_notices.py` holds them against
every known pattern. They ask for nothing but a pause, because everything else would cost another large request.
"""

from cachegate.guard.machine import Decision, Reason
from cachegate.guard.policy import Policy

_MEASURED = (
    "the last {count} large requests of this conversation each re-processed at least {tokens:,} input tokens, "
    "because the provider's prompt cache was not being reused"
)
_UNREPORTED = (
    "the last {count} large requests of this conversation were sent without proof that the prompt cache is being "
    "reused: the provider did not report its cache usage for all of them, so the real cost is unknown"
)
_ADVICE = (
    "Cachegate stopped this request before it reached the provider, so it cost nothing: {why}. "
    "Please wait {pause} without sending anything, then send one message. "
    "Each attempt during the pause restarts the wait."
)


def stop_words(decision: Decision, policy: Policy) -> str:
    """Return the message of a stop: what happened, why, and the one thing that helps."""
    why = _UNREPORTED if decision.reason is Reason.UNREPORTED else _MEASURED
    return _ADVICE.format(
        why=why.format(count=decision.count, tokens=policy.large_tokens), pause=_duration(policy.idle_ms)
    )


def _duration(ms: int) -> str:
    seconds = -(-ms // 1000)
    if seconds % 60 == 0:
        minutes = seconds // 60
        return "1 minute" if minutes == 1 else f"{minutes} minutes"
    return "1 second" if seconds == 1 else f"{seconds} seconds"
