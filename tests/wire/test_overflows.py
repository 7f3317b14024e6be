"""A real overflow is known in every provider's words and told in each protocol's own; a stop never looks like one."""

import json
import re
from itertools import product
from typing import Any

import pytest

from cachegate.errors import ErrorKind
from cachegate.guard.machine import Decision, Outcome, Reason
from cachegate.guard.notices import stop_words
from cachegate.guard.policy import Policy
from cachegate.wire.body import decode
from cachegate.wire.facts import Protocol
from cachegate.wire.failures import complaint, failure
from cachegate.wire.overflows import (
    CODE,
    CODES,
    EXCLUDED_CODES,
    PATTERNS,
    Size,
    ended_by_overflow,
    is_overflow,
    overflow_body,
    size_of,
)
from cachegate.wire.protocols import DIALECTS
from cachegate.wire.seen import Failed
from wire.vendor_sdks import JSON, Wire, anthropic_client, openai_client

N, M = 140_000, 131_072
SAMPLES: list[tuple[str, Any, Size | None]] = [
    ("Anthropic", {"error": {"type": "invalid_request_error", "message":
     "prompt is too long: 210000 tokens > 200000 maximum"}}, Size(210_000, 200_000)),
    ("Anthropic, with max_tokens", {"error": {"type": "invalid_request_error", "message":
     "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000"}}, None),
    ("OpenAI", {"error": {"code": "context_length_exceeded", "type": "invalid_request_error", "message":
     f"This model's maximum context length is {M} tokens. However, your messages resulted in {N} tokens."}},
     Size(N, M)),
    ("Qwen", {"error": {"code": "invalid_parameter_error", "message":
     "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]"}}, None),
    ("Codex", {"type": "response.failed", "response": {"error": {"code": "context_length_exceeded", "message":
     "Your input exceeds the context window of this model."}}}, None),
    ("Codex, flat", {"type": "error", "code": "context_length_exceeded", "message": "x"}, None),
    ("Copilot", {"error": {"code": "model_max_prompt_tokens_exceeded", "message":
     f"prompt token count of {N} exceeds the limit of {M}"}}, Size(N, M)),
    ("Copilot, words only", {"error": {"message": f"prompt token count of {N} exceeds the limit of {M}"}}, Size(N, M)),
    ("Copilot SDK", {"errorType": "context_limit", "message": "x"}, None),
    ("xAI", {"code": "invalid-argument", "error":
     f"This model's maximum prompt length is {M} but the request contains {N} tokens."}, Size(N, M)),
    ("xAI, newer", {"error": "[input_too_large] The request is too large."}, None),
    ("OpenRouter", {"error": {"code": 400, "message": "Provider returned error",
     "metadata": {"error_type": "context_length_exceeded"}}}, None),
    ("OpenRouter, words only", {"error": {"code": 400, "message":
     f"This endpoint's maximum context length is {M} tokens. However, you requested about {N} tokens"}}, Size(N, M)),
    ("OpenRouter, from a provider", {"error": {"code": 400, "message": "Provider returned error",
     "metadata": {"raw": '{"error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}}'}}},
     Size(210_000, 200_000)),
    ("Gemini", [{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message":
     "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576)."}}],
     Size(1_100_000, 1_048_576)),
    ("Mistral", {"object": "error", "type": "invalid_request_error", "code": "3051", "message":
     f"Prompt contains {N} tokens and 0 draft tokens, too large for model with {M} maximum context length"},
     Size(N, M)),
    ("Moonshot", {"error": {"type": "invalid_request_error", "message":
     f"Invalid request: Your request exceeded model token limit: {M} (requested: {N})"}}, Size(N, M)),
    ("Bedrock", {"message": "Input is too long for requested model."}, None),
    ("Bedrock, newer", {"message": f"prompt tokens ({N}) exceed model maximum ({M})"}, Size(N, M)),
    ("vLLM", {"object": "error", "type": "BadRequestError", "code": 400, "message":
     f"This model's maximum context length is {M} tokens. However, you requested {N} tokens ({N - 1} in the messages, "
     "1 in the completion). Please reduce the length of the messages or completion."}, Size(N, M)),
    ("vLLM, the prompt alone", {"error": {"type": "BadRequestError", "code": 400, "message":
     f"This model's maximum context length is {M} tokens. However, your request has {N} input tokens. Please reduce "
     "the length of the input messages."}}, Size(N, M)),
    ("vLLM, no room for the output", {"error": {"type": "BadRequestError", "code": 400, "message":
     f"'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is {M} tokens "
     f"and your request has 120000 input tokens (32000 > {M} - 120000)."}}, None),
    ("vLLM, newer", {"error": {"type": "BadRequestError", "code": 400, "message":
     f"This model's maximum context length is {M} tokens. However, you requested 20000 output tokens and your prompt "
     f"contains at least {N - 20_000} input tokens, for a total of at least {N} tokens. Please reduce the length of "
     "the input prompt or the number of requested output tokens. (parameter=input_tokens)"}}, Size(N, M)),
    ("SGLang", {"object": "error", "type": "BadRequest", "code": 400, "message":
     f"The input ({N} tokens) is longer than the model's context length ({M} tokens)."}, Size(N, M)),
    ("SGLang, with the output", {"object": "error", "type": "BadRequest", "code": 400, "message":
     f"Requested token count exceeds the model's maximum context length of {M} tokens. You requested a total of {N} "
     f"tokens: {N - 9_000} tokens from the input messages and 9000 tokens for the completion."}, Size(N, M)),
    ("DeepSeek", {"error": {"message": f"This model's maximum context length is {M:,} tokens. However, you requested "
     f"{N:,} tokens", "type": "invalid_request_error", "code": "invalid_request_error"}}, Size(N, M)),
    ("llama.cpp", {"error": {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": N, "n_ctx": M,
     "message": "the request exceeds the available context size, try increasing it"}}, Size(N, M)),
    ("llama.cpp, words only", {"error": {"message":
     f"request ({N} tokens) exceeds the available context size ({M} tokens), try increasing it"}}, Size(N, M)),
    ("llama.cpp, in an answer", {"code": 500, "type": "server_error", "message": "Context size has been exceeded."},
     None),
    ("Ollama", {"error": "the prompt is longer than the context length currently available"}, None),
    ("Ollama, newer", {"error": "input length exceeds the context length"}, None),
    ("LM Studio", {"error": "The number of tokens to keep from the initial prompt is greater than the context length"},
     None),
    ("MiniMax", {"error": {"message": "invalid params, context window exceeds limit"}}, None),
    ("Gemini, over two lines", {"error": {"message":
     f"The input token count\n({N}) exceeds the maximum number of tokens"}}, None),
    ("Groq", {"error": {"message": "Please reduce the length of the messages or completion."}}, None),
    ("a bare word", {"error": {"message": "Context Length Exceeded"}}, None),
    ("Claude CLI", {"error": {"type": "prompt_too_long", "message": "x"}}, None),
]  # fmt: skip
OTHER: list[tuple[int, Any]] = [
    (413, {"error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}),
    (413, {"error": {"message": "5.0 MB request; 5.0 MB limit"}}),
    (400, {"error": {"code": "string_above_max_length", "param": "user", "message":
     "Invalid 'user': string too long. Expected a string with maximum length 64, but got one of 77 instead."}}),
    (400, {"error": {"code": None, "message": "Invalid 'safety_identifier': exceeds the limit of 64 characters."}}),
    (400, {"error": {"code": None, "message": "The value of `user` exceeds the limit of 64 characters."}}),
    (400, {"error": {"code": "string_above_max_length", "message": "input[3] exceeds the limit of 10485760"}}),
    (429, {"error": {"code": "rate_limit_exceeded", "message": "Request exceeds the limit of 30000 tokens per min"}}),
    (429, {"error": {"message": "Your organization exceeds the limit of 30000 tokens per minute"}}),
    # Too many tools.
    (400, {"error": {"message": "Too many tools: the number of tools (140) exceeds the limit of 128."}}),
    (400, {"error": {"message": "tools: array of 140 items exceeds the limit of 128"}}),
    (400, {"error": {"code": "array_above_max_length", "message": "Invalid 'tools': the list is longer than the "
     "context length allows."}}),
    # Rates, told in a stream or under another status.
    (400, {"error": {"message": "Prompt token count of 40000 exceeds the limit of 30000 tokens per minute."}}),
    (413, {"error": {"message": "Request too large on tokens per minute (TPM): Limit 6000, Requested 7000, please "
     "reduce the length of the messages."}}),
    (400, {"error": {"message": "The input token count exceeds the maximum for your TPM tier."}}),
    (400, {"error": {"message": "Quota exceeded: input token count per minute exceeds the maximum of 250000."}}),
    (400, {"error": {"code": "insufficient_quota", "message": "Your prompt is too long for what is left of it."}}),
    # More output than the model has, whatever the conversation.
    (400, {"error": {"message": "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens"}}),
    (400, {"error": {"message": "max_tokens (200000) exceeds the limit of 16384"}}),
    (400, {"error": {"message": "`max_tokens` of 200000 exceeds the context window."}}),
    (400, {"error": {"message": "max_completion_tokens is greater than the context length"}}),
    (400, {"error": {"message": "max_output_tokens exceeds model maximum (16384)"}}),
    (400, {"message": "The requested output exceeds model maximum (16384)"}),
    (400, {"error": {"code": "integer_above_max_value", "message": "It exceeds the context window."}}),
    (400, {"message": "The maximum tokens you requested exceeds the model limit of 4096."}),
    (400, {"error": {"message": f"'max_tokens' or 'max_completion_tokens' is too large: {N}. This model's maximum "
     f"context length is {M} tokens and your request has 17 input tokens ({N} > {M} - 17)."}}),
    (400, {"error": {"message": f"This model's maximum context length is {M} tokens. However, you requested {N} "
     f"output tokens and your prompt contains 17 input tokens, for a total of {N + 17} tokens."}}),
    (400, {"error": {"message": f"This model's maximum context length is {M:,} tokens. However, you requested "
     f"{N + 17:,} tokens (17 in the messages, {N:,} in the completion)."}}),
    (400, {"error": {"message": f"Requested token count exceeds the model's maximum context length of {M} tokens. You "
     f"requested a total of {N + 17} tokens: 17 tokens from the input messages and {N} tokens for the completion."}}),
    (400, {"error": {"type": "invalid_request_error", "message":
     "input length and `max_tokens` exceed context limit: 1000 + 300000 > 200000"}}),
    # Bytes and pictures.
    (413, {"error": {"message": "Request body of 41943040 bytes exceeds the limit of 33554432"}}),
    (400, {"error": {"message": "messages.3.content.1.image: image exceeds 5 MB maximum: 6291456 bytes"}}),
    (400, {"error": {"code": "image_too_large", "message": "The image exceeds the context window of the model."}}),
    (400, {"error": {"code": "image_file_too_large", "message": "The image exceeds the context window of the model."}}),
    (400, {"error": {"code": "previous_response_not_found", "message": "Previous response not found."}}),
    (400, {"error": {"code": "invalid_prompt", "message": "Invalid prompt: the prompt is too long or was flagged."}}),
    (400, {"message": "Service tier capacity exceeded for this model."}),
    (500, {"code": 500, "type": "server_error", "message": "The maximum batch size has been exceeded."}),
    (429, {"code": 429, "type": "server_error", "message": "Context size has been exceeded."}),
    (529, {"error": {"type": "overloaded_error", "message": "Overloaded"}}),
    (400, {}), (400, None), (413, None), (500, "text"),
]  # fmt: skip
POLICIES = (Policy(), Policy(idle_ms=1_500), Policy(idle_ms=86_400_000, limit=1_000, large_tokens=100_000_000))
STOPS = [
    stop_words(Decision(Outcome.BLOCKED, reason, policy.limit), policy)
    for policy, reason in product(POLICIES, (Reason.MEASURED, Reason.UNREPORTED))
]


@pytest.mark.parametrize(("body", "size"), [pytest.param(body, size, id=name) for name, body, size in SAMPLES])
def test_a_full_context_is_known_in_every_providers_words(body: Any, size: Size | None) -> None:
    assert failure(body, 400) == (Failed(CODE),)
    assert failure(body) == (Failed(CODE),), "in a stream too"
    said = complaint(body)
    assert size_of(said.details, said.text) == size


@pytest.mark.parametrize(("status", "body"), OTHER)
def test_other_limits_are_no_full_context(status: int, body: Any) -> None:
    assert Failed(CODE) not in failure(body, status)


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_code_goes_before_the_words(code: str) -> None:
    assert is_overflow((code,), "")
    assert is_overflow(("x", code), "rate limit", 429)


def matches(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_is_needed_and_ignores_case(pattern: str) -> None:
    texts = [complaint(body).text.replace(",", "") for _, body, _ in SAMPLES]
    alone = [text for text in texts if [each for each in PATTERNS if matches(each, text)] == [pattern]]
    assert alone
    for text in alone:
        assert is_overflow((), text.upper())
        for code in EXCLUDED_CODES:
            assert not is_overflow((code,), text)


@pytest.mark.parametrize("reason", ["model_context_window_exceeded", "max_tokens", "length", None, 7, []])
def test_the_reason_of_an_end_may_be_a_full_context(reason: Any) -> None:
    assert ended_by_overflow(reason) is (reason == "model_context_window_exceeded")


@pytest.mark.parametrize("words", STOPS)
def test_a_stop_is_no_full_context(words: str) -> None:
    assert not is_overflow((), words)
    assert not [pattern for pattern in PATTERNS if re.search(pattern, words, re.IGNORECASE | re.DOTALL)]
    assert "prompt_too_long" not in words


def test_a_stop_in_the_shape_of_a_protocol_is_no_full_context(protocol: Protocol) -> None:
    for words in STOPS:
        body = decode(DIALECTS[protocol].stop_body(words, "req_1"))
        assert Failed(CODE) not in failure(body, 400)


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_no_error_of_our_own_is_a_full_context(protocol: Protocol, kind: ErrorKind) -> None:
    body = decode(DIALECTS[protocol].error_body(kind, "The provider at example.com broke off its answer.", "req_1"))
    assert Failed(CODE) not in failure(body, 400)


@pytest.mark.parametrize(
    ("error", "text", "size"),
    [
        ({"n_prompt_tokens": 9, "n_ctx": 8}, "", Size(9, 8)),
        ({"n_prompt_tokens": True, "n_ctx": 8}, "", None),
        ({"n_prompt_tokens": 9}, "", None),
        ({"n_prompt_tokens": 8, "n_ctx": 8}, "", None),
        ({}, "prompt is too long: 7 tokens > 8 maximum", None),
        ({}, "maximum context length is 8 tokens. However, you requested at least 9 tokens", Size(9, 8)),
        ({}, "maximum context length is 131,072 tokens. However, you requested about 140,000", Size(N, M)),
        ({}, "prompt is too long", None),
    ],
)
def test_numbers_are_taken_where_they_make_sense(error: dict[str, Any], text: str, size: Size | None) -> None:
    assert size_of(error, text) == size


@pytest.mark.parametrize("size", [None, Size(N, M)])
@pytest.mark.parametrize("told", list(Protocol))
def test_what_we_write_is_read_as_what_it_is(told: Protocol, size: Size | None) -> None:
    body = decode(overflow_body(told, size, "req_1"))
    assert failure(body, 400) == (Failed(CODE),)
    text = json.dumps(body)
    assert all((str(number) in text) is (size is not None) for number in (N, M)), "none are made up"


def test_messages_clients_know_it_by_the_wording() -> None:
    assert overflow_body(Protocol.MESSAGES, Size(210_000, 200_000), "req_1") == (
        b'{"type":"error","error":{"type":"invalid_request_error",'
        b'"message":"prompt is too long: 210000 tokens > 200000 maximum"},"request_id":"req_1"}'
    )
    wire = Wire(overflow_body(Protocol.MESSAGES, None, "req_1"), status=400, kind=JSON)
    with anthropic_client(wire) as client, pytest.raises(Exception, match="prompt is too long") as raised:
        client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
    assert type(raised.value).__name__ == "BadRequestError"
    assert wire.asked == 1


def test_openai_clients_know_it_by_the_code() -> None:
    for told in (protocol for protocol in Protocol if protocol is not Protocol.MESSAGES):
        wire = Wire(overflow_body(told, Size(N, M), "req_1"), status=400, kind=JSON)
        with openai_client(wire) as client, pytest.raises(Exception, match="context window") as raised:
            client.responses.create(model="m", input="hi")
        assert getattr(raised.value, "code", None) == CODE
