import openai.types.responses
import pytest

from cachegate.guard.usage import Usage
from cachegate.wire.hub import Choice, Counted, Request, Sampling, Started
from cachegate.wire.responses.answer_objects import (
    Identity,
    compaction_item,
    message_item,
    reasoning_item,
    refusal_part,
    response_object,
    text_part,
    usage_object,
)

ASKED = Request("asked", stream=True)


def identity(answer_id: str = "a1") -> Identity:
    return Identity.of(Started(answer_id, "m", 7), ASKED)


@pytest.mark.parametrize(
    ("answer_id", "response_id", "item_id"),
    [
        ("a1", "resp_a1", "msg_a1_0"),
        ("resp_a1", "resp_a1", "msg_a1_0"),
        ("msg_01XFDUDYJgAACzvnptvVoYEL", "resp_msg_01XFDUDYJgAACzvnptvVoYEL", "msg_msg_01XFDUDYJgAACzvnptvVoYEL_0"),
    ],
)
def test_ids_are_the_upstreams_own(answer_id: str, response_id: str, item_id: str) -> None:
    assert identity(answer_id).response_id == response_id
    assert identity(answer_id).item_id("msg", 0) == item_id


@pytest.mark.parametrize("answer_id", ["", "gen 1", "é", "x" * 200])
def test_an_id_that_openai_would_not_take_back_is_a_digest_of_it(answer_id: str) -> None:
    ours = identity(answer_id)
    assert ours.response_id == identity(answer_id).response_id != identity("other!").response_id
    assert len(ours.item_id("msg", 99)) <= 64
    assert ours.item_id("msg", 0) != ours.item_id("msg", 1)


def test_what_the_upstream_did_not_say_has_a_fixed_value() -> None:
    unknown = Identity.of(Started("a1", ""), ASKED)
    assert (unknown.model, unknown.created_s) == ("asked", 0)


def test_a_response_has_every_field_of_the_sdks_type() -> None:
    asked = Request("m", stream=True, choice=Choice.ONE, parallel_tools=False, sampling=Sampling(temperature=0.5))
    output = [
        message_item("msg_1", [text_part("a", ()), refusal_part("b")]),
        reasoning_item("rs_1", "Hm.", "gAAA"),
        compaction_item("cmp_1", "gAAA"),
    ]
    response = response_object(identity(), asked, "completed", output)
    read = openai.types.responses.Response.model_validate(response)
    assert (read.id, read.created_at, read.model, read.usage) == ("resp_a1", 7, "m", None)
    assert (read.parallel_tool_calls, read.temperature, read.tool_choice) == (False, 0.5, "required")
    assert [item.type for item in read.output] == ["message", "reasoning", "compaction"]


def test_thoughts_without_a_text_or_a_value_leave_them_out() -> None:
    assert reasoning_item("rs_1", "", None) == {"id": "rs_1", "type": "reasoning", "summary": []}


@pytest.mark.parametrize(
    ("counted", "usage"),
    [
        (None, None),
        (Counted(Usage()), None),
        (Counted(Usage(9, 4)), None),
        (Counted(Usage(None, 4), 2), None),
        (Counted(Usage(9), 2), {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11}),
        (
            Counted(Usage(9, 0), 2, 1),
            {
                "input_tokens": 9,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 2,
                "output_tokens_details": {"reasoning_tokens": 1},
                "total_tokens": 11,
            },
        ),
        (
            Counted(Usage(9, 4, 5), 2),
            {
                "input_tokens": 9,
                "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 5},
                "output_tokens": 2,
                "total_tokens": 11,
            },
        ),
    ],
)
def test_what_is_unknown_of_the_usage_is_left_out(counted: Counted | None, usage: object) -> None:
    assert usage_object(counted) == usage
