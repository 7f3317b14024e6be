import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.guard.usage import Usage
from cachegate.wire.native_events import EVENT_READERS, Calls
from cachegate.wire.seen import Failed, Finished, Refusal, Seen
from cachegate.wire.usage_readings import READINGS, Format, reading_of
from wire.usage_cases import UsageCase, cases, outcome_of, seen_natively

CASES = cases(*EVENT_READERS)
OVERFLOW = Failed("context_length_exceeded")


def read(shape: Format, *events: dict[str, Any]) -> tuple[tuple[Seen, ...], Calls]:
    reader = EVENT_READERS[shape](reading_of(shape.value, shape), calls := Calls())
    return tuple(item for event in events for item in reader.read(event)), calls


def seen(shape: Format, *events: dict[str, Any]) -> tuple[Seen, ...]:
    return read(shape, *events)[0]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_of_usage(case: UsageCase) -> None:
    observed, calls = seen_natively(case)
    last = calls.main[-1] if calls.main else Usage()
    assert last == case.usage
    assert last.uncached == case.uncached
    assert calls.of_agents == case.subagent_calls
    assert not calls.inconsistent
    if case.calls is not None:
        assert calls.main == case.calls
    if case.outcome:
        assert outcome_of(case, observed) == case.outcome


def test_every_format_of_its_own_has_a_reader_and_a_provider() -> None:
    assert {*EVENT_READERS, Format.MESSAGES, Format.RESPONSES, Format.CHAT} == set(Format)
    assert all(shape in READINGS[shape.value] for shape in EVENT_READERS)


# --- Claude CLI ---


def raw(event: dict[str, Any], agent: str | None = None) -> dict[str, Any]:
    return {"type": "stream_event", "session_id": "s1", "parent_tool_use_id": agent, "event": event}


def start(agent: str | None = None, **usage: Any) -> dict[str, Any]:
    return raw({"type": "message_start", "message": {"usage": usage}}, agent)


def delta(reason: str | None, agent: str | None = None, **usage: Any) -> dict[str, Any]:
    return raw({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}, agent)


def result(**fields: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, **fields}


def synthetic(text: str, **message: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"type": "assistant", "message": {"model": "<synthetic>", "content": content, **message}}


CANNOT = "Claude can't help with this. Start a new session to continue."


def test_parallel_sub_agents_are_kept_apart_from_each_other_and_from_the_main_call() -> None:
    observed, calls = read(
        Format.CLAUDE_CLI,
        start(input_tokens=1, cache_read_input_tokens=10),
        start("a", input_tokens=2),
        start("b", input_tokens=3),
        delta("end_turn", "a", cache_read_input_tokens=5),
        delta("end_turn", "b", cache_read_input_tokens=6),
        delta("refusal", "b"),
        delta("tool_use", cache_read_input_tokens=20),
        result(usage={"input_tokens": 999}),
    )
    assert calls.main == (Usage(21, 20),)
    assert calls.of_agents == (Usage(7, 5), Usage(9, 6))
    assert observed == (Usage(11, 10), Usage(21, 20), Finished()), "an agent's refusal and usage are its own"


def test_the_sum_of_a_turn_is_no_observation() -> None:
    observed, calls = read(Format.CLAUDE_CLI, result(usage={"input_tokens": 9, "cache_read_input_tokens": 0}))
    assert (observed, calls.main) == ((Finished(),), ())


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (delta("refusal"), (Usage(), Refusal())),
        (synthetic("x", stop_reason="refusal"), (Refusal(),)),
        (synthetic(CANNOT), (Refusal(),)),
        ({**synthetic(CANNOT, model="claude-opus"), "is_api_error_message": True}, (Refusal(),)),
        (result(is_error=True, terminal_reason="refusal", result="x"), (Refusal(), Failed("refusal"))),
        (result(is_error=True, terminal_reason="refusal", stop_reason="refusal", result=CANNOT),
         (Refusal(), Failed("refusal"))),
        (result(is_error=True, result=CANNOT), (Refusal(), Failed("success"))),
        (result(is_error=True, stop_reason="refusal", subtype="error_during_execution", result=""),
         (Refusal(), Failed("error_during_execution"))),
        (result(stop_reason="refusal"), (Refusal(), Finished())),
        # What the model or a sub-agent says is not searched.
        (synthetic(CANNOT, model="claude-opus"), ()),
        ({**synthetic(CANNOT), "parent_tool_use_id": "a"}, ()),
        (result(result=CANNOT), (Finished(),)),
        (synthetic("Prompt is too long"), ()),
    ],
)  # fmt: skip
def test_a_refusal_of_the_claude_cli(event: dict[str, Any], told: tuple[Seen, ...]) -> None:
    assert seen(Format.CLAUDE_CLI, event) == told


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"terminal_reason": "prompt_too_long", "api_error_status": 400, "result": "x"}, OVERFLOW),
        ({"result": "Prompt is too long"}, OVERFLOW),
        ({"api_error": "usage_limit_reached", "api_error_status": 429, "result": "prompt is too long"},
         Failed("usage_limit_reached")),
        ({"terminal_reason": "aborted_streaming"}, Failed("aborted_streaming")),
        ({"subtype": "error_during_execution", "api_error_status": 529, "result": None},
         Failed("error_during_execution")),
        ({"subtype": None}, Failed("unknown")),
    ],
)  # fmt: skip
def test_a_failure_of_the_claude_cli(fields: dict[str, Any], told: Seen) -> None:
    assert seen(Format.CLAUDE_CLI, result(**{"is_error": True, **fields})) == (told,)


def test_a_raw_error_and_a_full_context_of_the_claude_cli() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}
    assert seen(Format.CLAUDE_CLI, raw(error)) == (Failed("overloaded_error"),)
    assert seen(Format.CLAUDE_CLI, raw(error, "a")) == ()
    assert seen(Format.CLAUDE_CLI, delta("model_context_window_exceeded")) == (Usage(), OVERFLOW)


# --- Copilot SDK ---


def used(agent: str | None = None, **data: Any) -> dict[str, Any]:
    event = {"type": "assistant.usage", "data": {"inputTokens": 9, **data}}
    return event if agent is None else {**event, "agentId": agent}


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (used(finishReason="content_filter"), (Usage(9), Refusal(), Finished())),
        (used(contentFilterTriggered=True), (Usage(9), Refusal(), Finished())),
        (used(finishReason="stop", contentFilterTriggered=False), (Usage(9), Finished())),
        (used("agent-7", finishReason="content_filter"), ()),
        (used(cacheReadTokens=4, cacheDetailsReported=False), (Usage(9, 4), Finished())),
        (used(cacheReadTokens=0, cacheDetailsReported=None), (Usage(9, 0), Finished())),
        ({"type": "session.usage_info", "data": {"inputTokens": 9, "cacheReadTokens": 4}}, ()),
        ({"type": "session.error", "data": {"errorType": "context_limit", "message": "x"}}, (OVERFLOW,)),
        ({"type": "session.error", "data": {"errorType": "quota", "errorCode": "quota_exceeded"}}, (Failed("quota"),)),
        ({"type": "session.error", "agentId": "a", "data": {"errorType": "quota"}}, ()),
        ({"type": "abort", "data": {"reason": "user_abort"}}, (Failed("user_abort"),)),
        ({"type": "assistant.usage"}, (Usage(), Finished())),
    ],
)
def test_an_event_of_the_copilot_sdk(event: dict[str, Any], told: tuple[Seen, ...]) -> None:
    assert seen(Format.COPILOT_SDK, event) == told


def test_every_usage_event_is_a_call_of_its_own() -> None:
    _, calls = read(Format.COPILOT_SDK, used(cacheReadTokens=4), used(), used("a"), used(""))
    assert calls.main == (Usage(9, 4), Usage(9), Usage(9))
    assert calls.of_agents == (Usage(9),)


# --- Gemini, Bedrock, Ollama ---


@pytest.mark.parametrize("reason", ["SAFETY", "PROHIBITED_CONTENT"])
def test_a_refusal_of_gemini(reason: str) -> None:
    usage = {"usageMetadata": {"promptTokenCount": 9}}
    assert seen(Format.GEMINI, {"promptFeedback": {"blockReason": reason}}) == (Refusal(), Finished())
    ended = {"candidates": [{"finishReason": reason}]}
    assert seen(Format.GEMINI, {**usage, **ended}) == (Usage(9), Refusal(), Finished())
    assert seen(Format.GEMINI, usage, ended, usage) == (Usage(9), Refusal(), Finished(), Usage(9))


def test_gemini_repeats_its_usage_and_ends_with_a_reason() -> None:
    grown = [{"usageMetadata": {"promptTokenCount": 9, "cachedContentTokenCount": read}} for read in (1, 4)]
    observed, calls = read(Format.GEMINI, *grown, {"candidates": [{"finishReason": "STOP"}, {}]})
    assert (observed, calls.main) == ((Usage(9, 1), Usage(9, 4), Finished()), (Usage(9, 4),))
    error = {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "x"}}
    assert seen(Format.GEMINI, error) == (Failed("INVALID_ARGUMENT"),)
    error["error"]["message"] = "The input token count (9) exceeds the maximum number of tokens allowed (8)."
    assert seen(Format.GEMINI, error) == (OVERFLOW,)


@pytest.mark.parametrize("reason", ["guardrail_intervened", "content_filtered"])
def test_a_refusal_of_bedrock(reason: str) -> None:
    usage = {"inputTokens": 9, "cacheReadInputTokens": 0}
    assert seen(Format.BEDROCK, {"stopReason": reason, "usage": usage}) == (Usage(9, 0), Refusal(), Finished())
    streamed = ({"messageStop": {"stopReason": reason}}, {"metadata": {"usage": usage}})
    assert seen(Format.BEDROCK, *streamed) == (Refusal(), Finished(), Usage(9, 0))


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ({"messageStop": {"stopReason": "end_turn"}}, (Finished(),)),
        ({"messageStop": {"stopReason": "model_context_window_exceeded"}}, (OVERFLOW, Finished())),
        ({"modelStreamErrorException": {"message": "x"}}, (Failed("modelStreamErrorException"),)),
        ({"throttlingException": {"message": "Too many tokens, please wait"}}, (Failed("throttlingException"),)),
        ({"validationException": {"message": "Input is too long for requested model."}}, (OVERFLOW,)),
        ({"__type": "com.amazon#ValidationException", "message": "prompt tokens (9) exceed model maximum (8)"},
         (OVERFLOW,)),
        ({"__type": "com.amazon#ThrottlingException", "message": "x"}, (Failed("ThrottlingException"),)),
        ({"internalServerException": None}, (Failed("internalServerException"),)),
        ({"contentBlockDelta": {"delta": {"text": "x"}}}, ()),
    ],
)  # fmt: skip
def test_an_event_of_bedrock(event: dict[str, Any], told: tuple[Seen, ...]) -> None:
    assert seen(Format.BEDROCK, event) == told


def test_a_line_of_ollama() -> None:
    assert seen(Format.OLLAMA, {"done": False, "prompt_eval_count": 9}) == ()
    assert seen(Format.OLLAMA, {"done": True, "prompt_eval_count": 9}) == (Usage(9), Finished())
    assert seen(Format.OLLAMA, {"done": True}) == (Usage(), Finished())
    assert seen(Format.OLLAMA, {"error": "model not found"}) == (Failed("unknown"),)
    assert seen(Format.OLLAMA, {"error": "input length exceeds the context length"}) == (OVERFLOW,)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
KINDS = ["stream_event", "assistant", "result", "assistant.usage", "session.error", "abort"]
NAMES = (
    "event", "message", "usage", "data", "error", "is_error", "parent_tool_use_id", "agentId", "usageMetadata", "done",
    "candidates", "promptFeedback", "metadata", "messageStop", "stopReason", "xException", "__type", "result",
)  # fmt: skip
EVENTS = st.fixed_dictionaries({"type": st.sampled_from(KINDS) | JSON}, optional=dict.fromkeys(NAMES, JSON))


@settings(deadline=None, max_examples=300)
@given(st.lists(EVENTS, max_size=4), st.sampled_from(sorted(EVENT_READERS)))
def test_fields_of_any_type_are_read_without_a_crash(events: list[dict[str, Any]], shape: Format) -> None:
    _, calls = read(shape, *(json.loads(json.dumps(event)) for event in events))
    assert all(usage.cached_read is None for usage in (*calls.main, *calls.of_agents))
