import json

import pytest

from cachegate.wire.envelopes import Envelope, open_envelope
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import PartEnded, PartKind, PartStarted, Target, ToolCall, ToolRef
from cachegate.wire.quirks import Quirk
from cachegate.wire.responses.answer_objects import Identity
from cachegate.wire.responses.answer_parts import PARTS, Frames, Place
from cachegate.wire.responses.tool_parser import CLIENT_SEARCH

IDENTITY = Identity("a1", "m", 7)
CITED = {"type": "url_citation", "url": "https://x", "title": "X", "start_index": 0, "end_index": 1}


def written(
    started: PartStarted,
    *deltas: str,
    ended: PartEnded | None = None,
    origin: Protocol | None = None,
    quirks: tuple[Quirk, ...] = (),
) -> tuple[Frames, object]:
    target = Target("m", "claude", origin=origin, quirks=frozenset(quirks))
    part = PARTS[started.kind](Place(IDENTITY, target, 3), started)
    frames = [*part.begin(), *(frame for text in deltas for frame in part.delta(text))]
    assert part.item is None
    frames += part.end(ended or PartEnded(started.index))
    assert frames[-1] == ("response.output_item.done", {"output_index": 3, "item": part.item})
    return frames, part.item


def names(frames: Frames) -> list[str]:
    return [name.removeprefix("response.") for name, _ in frames]


def called(ref: ToolRef) -> PartStarted:
    return PartStarted(0, PartKind.TOOL_CALL, ToolCall("c1", ref, ""))


def test_a_text_is_a_message_with_the_citations_of_this_protocol() -> None:
    ended = PartEnded(0, annotations=(CITED, {"type": "char_location"}))
    frames, item = written(PartStarted(0, PartKind.TEXT), "Hel", "lo", ended=ended)
    assert names(frames) == [
        "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.annotation.added", "output_text.done", "content_part.done", "output_item.done",
    ]  # fmt: skip
    part = {"type": "output_text", "text": "Hello", "annotations": [CITED], "logprobs": []}
    assert item == {
        "id": "msg_a1_3", "type": "message", "role": "assistant", "status": "completed", "content": [part],
    }  # fmt: skip


def test_the_label_of_a_message_is_told_from_its_beginning() -> None:
    frames, item = written(PartStarted(0, PartKind.TEXT, phase="commentary"), "Hm.")
    begun = frames[0][1]["item"]
    for told in (begun, item):
        assert isinstance(told, dict)
        assert told["phase"] == "commentary"


def test_a_refusal_is_a_message_of_its_own_kind() -> None:
    frames, item = written(PartStarted(0, PartKind.REFUSAL), "No.")
    assert "refusal.delta" in names(frames)
    assert json.dumps(item).count('"refusal": "No."') == 1


def test_thoughts_are_a_summary_where_anything_can_be_read() -> None:
    frames, item = written(PartStarted(0, PartKind.THINKING), "H", "m.")
    assert names(frames) == [
        "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta",
        "reasoning_summary_text.delta", "reasoning_summary_text.done", "reasoning_summary_part.done",
        "output_item.done",
    ]  # fmt: skip
    summary = [{"type": "summary_text", "text": "Hm."}]
    assert item == {"id": "rs_a1_3", "type": "reasoning", "summary": summary}
    assert names(written(PartStarted(0, PartKind.THINKING))[0]) == ["output_item.added", "output_item.done"]


@pytest.mark.parametrize("origin", [None, Protocol.RESPONSES])
def test_thoughts_of_this_protocol_go_out_as_they_are(origin: Protocol | None) -> None:
    started = PartStarted(0, PartKind.THINKING, item_id="rs_9")
    _, item = written(started, ended=PartEnded(0, opaque="gAAA"), origin=origin)
    assert item == {"id": "rs_9", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"}


@pytest.mark.parametrize("origin", [Protocol.MESSAGES, Protocol.RESPONSES])
def test_thoughts_that_their_upstream_takes_back_as_text_go_out_in_an_envelope(origin: Protocol) -> None:
    started, plain = PartStarted(0, PartKind.THINKING, item_id="rs_1"), (Quirk.PLAIN_THOUGHTS,)
    _, item = written(started, "Hm", ".", origin=origin, quirks=plain)
    assert isinstance(item, dict)
    assert open_envelope(item["encrypted_content"]) == Envelope(origin, "claude", "Hm.", "", item_id="rs_1")
    for more in ({"quirks": ()}, {"deltas": (), "quirks": plain}):
        _, none = written(started, *more.get("deltas", ("Hm.",)), origin=origin, quirks=more["quirks"])
        assert isinstance(none, dict)
        assert "encrypted_content" not in none


@pytest.mark.parametrize("redacted", [False, True])
def test_thoughts_of_another_protocol_go_out_in_an_envelope(redacted: bool) -> None:
    started = PartStarted(0, PartKind.THINKING, item_id="th_9")
    ended = PartEnded(0, opaque="sig==", redacted=redacted)
    _, item = written(started, "Hm.", ended=ended, origin=Protocol.MESSAGES)
    assert isinstance(item, dict)
    assert item["id"] == "rs_a1_3"
    assert open_envelope(item["encrypted_content"]) == Envelope(
        Protocol.MESSAGES, "claude", "Hm.", "sig==", item_id="th_9", redacted=redacted
    )


def test_a_function_is_called_with_its_namespace() -> None:
    frames, item = written(called(ToolRef("spawn", "agents")), '{"a"', ":1}")
    assert names(frames) == [
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta",
        "function_call_arguments.done", "output_item.done",
    ]  # fmt: skip
    assert item == {
        "id": "fc_a1_3", "type": "function_call", "status": "completed", "arguments": '{"a":1}', "call_id": "c1",
        "name": "spawn", "namespace": "agents",
    }  # fmt: skip


def test_a_function_without_arguments_has_an_empty_object_of_them() -> None:
    for deltas in ((), ("",)):
        frames, item = written(called(ToolRef("shell")), *deltas)
        assert isinstance(item, dict)
        assert item["arguments"] == "{}"
        assert "".join(str(fields["delta"]) for name, fields in frames if name.endswith(".delta")) == "{}"


def test_a_custom_tool_is_called_with_its_text_even_an_empty_one() -> None:
    frames, item = written(called(ToolRef("apply_patch", custom=True)), "*** Begin")
    assert names(frames)[1:3] == ["custom_tool_call_input.delta", "custom_tool_call_input.done"]
    assert item == {
        "id": "ctc_a1_3", "type": "custom_tool_call", "status": "completed", "input": "*** Begin", "call_id": "c1",
        "name": "apply_patch",
    }  # fmt: skip
    empty = written(called(ToolRef("apply_patch", custom=True)))[1]
    assert isinstance(empty, dict)
    assert empty["input"] == ""


@pytest.mark.parametrize(
    ("deltas", "arguments"), [(('{"query":', '"x"}'), {"query": "x"}), ((), {}), (("{",), "{"), (("null",), "null")]
)
def test_the_clients_own_search_is_called_as_what_it_is(deltas: tuple[str, ...], arguments: object) -> None:
    frames, item = written(called(CLIENT_SEARCH), *deltas)
    assert names(frames) == ["output_item.added", "output_item.done"]
    assert item == {
        "id": "tsc_a1_3", "type": "tool_search_call", "status": "completed", "execution": "client", "call_id": "c1",
        "arguments": arguments,
    }  # fmt: skip
