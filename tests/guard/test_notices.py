"""The words of a stop (R23): what they must say, and what no client may read into them."""

import re
from dataclasses import replace
from itertools import product

import pytest

from cachegate.guard.fingerprint import UNKNOWN, Cause, Change
from cachegate.guard.machine import Decision, Outcome, Reason
from cachegate.guard.notices import cause_words, stop_words
from cachegate.guard.policy import Policy

OVERFLOW = (
    r"prompt is too long",
    r"input is too long for requested model",
    r"exceeds the context window",
    r"input token count.*exceeds the maximum",
    r"maximum prompt length is \d+",
    r"reduce the length of the messages",
    r"maximum context length is \d+ tokens",
    r"exceeds the limit of \d+",
    r"exceeds the available context size",
    r"greater than the context length",
    r"context window exceeds limit",
    r"exceeded model token limit",
    r"too large for model with \d+ maximum context length",
    r"context[_ ]length[_ ]exceeded",
    r"exceed context limit",
    r"input_too_large",
    r"exceeds? model maximum",
    r"longer than the context length",
    r"exceeds the context length",
)
"""What libraries take for a full context, in their order of matching."""

CLIENTS = (
    r"capability_rejected: prompt_too_long",
    r"context window",
    r"maximum context length",
    r"tokens.*maximum",
    r"input is too long",
    r"input length and `?max_tokens`? exceed",
    r"request too large",
    r"model_max_prompt_tokens_exceeded",
    r"exceed_context_size_error",
    r"model_context_window_exceeded",
    r"context_limit",
    r"out of room",
    r"size limit",
)
"""What clients react to by compacting, trimming or marking their context full."""

SAMPLES = (
    "prompt is too long: 210000 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000",
    "context_length_exceeded",
    "prompt token count of 130000 exceeds the limit of 128000",
    "This model's maximum prompt length is 131072 but the request contains 140000",
    "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000",
    "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576)",
    "Prompt contains 140000 tokens, too large for model with 131072 maximum context length",
    "Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)",
    "Input is too long for requested model.",
    "prompt tokens (140000) exceed model maximum (131072)",
    "the prompt is longer than the context length currently available",
    "input length exceeds the context length",
    "the number of tokens to keep from the initial prompt is greater than the context length",
)
"""What providers say when the context really is full."""

POLICIES = (
    Policy(),
    Policy(idle_ms=1),
    Policy(idle_ms=1_500),
    Policy(idle_ms=60_000, limit=1, large_tokens=1),
    Policy(idle_ms=90_000, limit=5, large_tokens=1_000_000),
    Policy(idle_ms=86_400_000, limit=1_000, large_tokens=100_000_000),
)
WORDS = {
    Change.TOOLS: "The last time, the tools had changed.",
    Change.INSTRUCTIONS: "The last time, the instructions had changed.",
    Change.THINKING: "The last time, the thinking effort had changed.",
    Change.SPEED: "The last time, the speed setting had changed.",
    Change.HISTORY: "The last time, the conversation had been edited at item 3 of 9.",
    Change.IDLE: "The last time, 7 minutes had passed since the request before.",
    Change.UNMARKED: "The client does not ask the provider to cache anything.",
    Change.UNCHANGED: "The last time, the client had changed nothing of what was sent before.",
    Change.UNKNOWN: "",
}
CAUSES = [Cause(change, item=3, items=9, gap_s=420) for change in Change]
STOPS = [
    *(
        pytest.param(Decision(Outcome.BLOCKED, reason, policy.limit), policy, False, id=f"{reason} {policy.idle_ms} ms")
        for policy, reason in product(POLICIES, (Reason.MEASURED, Reason.UNREPORTED))
    ),
    *(
        pytest.param(
            Decision(Outcome.BLOCKED, reason, 2, cause),
            Policy(),
            anonymous,
            id=f"{reason} {cause.change}{' anonymous' if anonymous else ''}",
        )
        for reason, cause, anonymous in product((Reason.MEASURED, Reason.UNREPORTED), CAUSES, (False, True))
    ),
]
MEASURED = Decision(Outcome.BLOCKED, Reason.MEASURED, 2)
UNREPORTED = Decision(Outcome.BLOCKED, Reason.UNREPORTED, 2)


@pytest.mark.parametrize(("decision", "policy", "anonymous"), STOPS)
def test_no_client_takes_a_stop_for_a_full_context(decision: Decision, policy: Policy, anonymous: bool) -> None:
    words = stop_words(decision, policy, anonymous=anonymous)
    taken_for = [pattern for pattern in (*OVERFLOW, *CLIENTS) if re.search(pattern, words, re.IGNORECASE | re.DOTALL)]
    assert not taken_for, words


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_patterns_do_find_full_contexts(sample: str) -> None:
    assert any(re.search(pattern, sample, re.IGNORECASE) for pattern in OVERFLOW)


@pytest.mark.parametrize(("decision", "policy", "anonymous"), STOPS)
def test_a_stop_never_speaks_of_making_the_chat_smaller(decision: Decision, policy: Policy, anonymous: bool) -> None:
    words = stop_words(decision, policy, anonymous=anonymous)
    assert not re.search(
        r"compact|summar|shorten|trim|truncat|clear|new (chat|session|conversation)", words, re.IGNORECASE
    )


@pytest.mark.parametrize(("decision", "policy", "anonymous"), STOPS)
def test_a_stop_tells_the_one_thing_that_helps(decision: Decision, policy: Policy, anonymous: bool) -> None:
    words = stop_words(decision, policy, anonymous=anonymous)
    assert "without sending anything" in words
    assert "one message" in words
    assert "Each attempt during the pause restarts the wait." in words
    assert "before it reached the provider" in words


@pytest.mark.parametrize("decision", [MEASURED, UNREPORTED], ids=["R23 measured", "R23 unreported"])
def test_the_documented_policy_says_five_minutes(decision: Decision) -> None:
    assert "wait 5 minutes without sending anything, then send one message" in stop_words(decision, Policy())


@pytest.mark.parametrize(
    ("idle_ms", "pause"),
    [
        (1, "1 second "),
        (1_000, "1 second "),
        (1_001, "2 seconds "),
        (59_999, "1 minute "),
        (60_000, "1 minute "),
        (60_001, "61 seconds "),
        (90_000, "90 seconds "),
        (120_000, "2 minutes "),
        (300_000, "5 minutes "),
        (3_600_000, "60 minutes "),
    ],
)
def test_the_pause_is_the_policys_and_never_too_short(idle_ms: int, pause: str) -> None:
    assert f"wait {pause}without" in stop_words(MEASURED, Policy(idle_ms=idle_ms))


def test_r9_the_two_stops_are_told_apart() -> None:
    assert stop_words(MEASURED, Policy()) != stop_words(UNREPORTED, Policy())


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: f"R9 {cause.change}")
def test_r9_unknown_usage_is_never_told_as_measured(cause: Cause) -> None:
    told_as_measured = r"\b0\b|zero|\bnone\b|missed|re-?processed|not being reused|measured|\blost\b|not reused"
    for policy in POLICIES:
        words = stop_words(Decision(Outcome.BLOCKED, Reason.UNREPORTED, policy.limit, cause), policy)
        assert "did not report" in words
        assert "unknown" in words
        assert not re.search(told_as_measured, words, re.IGNORECASE)
        assert "tokens" not in words, "no number of tokens is known"


def test_r9_a_measured_stop_says_how_much() -> None:
    words = stop_words(MEASURED, Policy())
    assert "last 2 large requests" in words
    assert "at least 65,536 input tokens" in words
    assert "not being reused" in words


@pytest.mark.parametrize(("decision", "policy", "anonymous"), STOPS)
def test_a_stop_is_a_few_plain_sentences(decision: Decision, policy: Policy, anonymous: bool) -> None:
    words = stop_words(decision, policy, anonymous=anonymous)
    assert len(words) < 600
    assert words.isprintable(), "one line: clients show it as it is"
    assert not set("{}<>\\`") & set(words)
    assert words.endswith(".")


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: f"R23 {cause.change}")
def test_every_cause_has_its_words(cause: Cause) -> None:
    assert cause_words(cause) == WORDS[cause.change]
    for decision in (MEASURED, UNREPORTED):
        words = stop_words(replace(decision, cause=cause), Policy())
        assert words.count(WORDS[cause.change]) >= 1
        assert words.replace(f" {WORDS[cause.change]}", "", 1) == stop_words(decision, Policy()) or not cause_words(
            cause
        )


def test_a_stop_of_unknown_cause_says_nothing_of_it() -> None:
    assert cause_words(UNKNOWN) == ""
    assert stop_words(replace(MEASURED, cause=UNKNOWN), Policy()) == stop_words(MEASURED, Policy())
    assert "  " not in stop_words(MEASURED, Policy())


@pytest.mark.parametrize(
    ("gap_s", "words"),
    [(300, "5 minutes had passed"), (301, "301 seconds had passed"), (3_600, "60 minutes had passed")],
)
def test_a_pause_is_told_in_whole_minutes_where_it_is_some(gap_s: int, words: str) -> None:
    assert words in cause_words(Cause(Change.IDLE, gap_s=gap_s))


@pytest.mark.parametrize("decision", [MEASURED, UNREPORTED], ids=["R2 measured", "R2 unreported"])
def test_who_names_no_conversation_is_not_told_of_one(decision: Decision) -> None:
    named, anonymous = (stop_words(decision, Policy(), anonymous=anonymous) for anonymous in (False, True))
    assert "the last 2 large requests of this conversation " in named
    assert "the last 2 large requests from clients that name no conversation " in anonymous
    assert "this conversation" not in anonymous
    assert named.replace("of this conversation", "from clients that name no conversation") == anonymous
