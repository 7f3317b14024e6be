import json
from dataclasses import replace
from typing import Any

import openai.types.responses
import pytest

from cachegate.errors import ErrorKind, UpstreamError
from cachegate.guard.usage import Usage
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import (
    Broken,
    Compacted,
    Counted,
    Delta,
    Ended,
    Event,
    Image,
    Message,
    PartEnded,
    PartKind,
    PartStarted,
    Purpose,
    Request,
    Role,
    Started,
    Stop,
    Target,
    Text,
    ToolCall,
    ToolRef,
)
from cachegate.wire.overflows import CODE
from cachegate.wire.responses.compaction_writer import NO_SUMMARY, REFUSED, CompactionWriter, write_compaction
from cachegate.wire.responses.request_parser import parse_request
from wire.transcripts import feed
from wire.vendor_sdks import check_openai_event, openai_final

SAID = Message(Role.USER, (Text("Fix it."), Image(url="https://x/a.png")))
ITEMS = (Message(Role.DEVELOPER, (Text("Note."),)), SAID, Message(Role.ASSISTANT, (Text("Done."),)))
ASKED = Request("m", stream=True, items=ITEMS, purpose=Purpose.COMPACTION_ITEM)
TARGET = Target("claude", "claude", origin=Protocol.MESSAGES)
BEGUN, COUNTED = Started("msg_1", "claude", 7), Counted(Usage(90_000, 88_000, 1_000), 500)
SUMMARY: tuple[Event, ...] = (
    BEGUN,
    PartStarted(0, PartKind.THINKING),
    Delta(0, "Hm."),
    PartEnded(0, opaque="sig"),
    PartStarted(1, PartKind.TEXT),
    Delta(1, "All that "),
    Delta(1, "happened."),
    PartEnded(1),
    PartStarted(2, PartKind.TOOL_CALL, ToolCall("c", ToolRef("shell"), "")),
    Delta(2, "{}"),
    PartEnded(2),
    PartStarted(3, PartKind.TEXT),
    Delta(3, "The rest."),
    PartEnded(3),
    COUNTED,
    Ended(Stop.END),
)
TEXT = "All that happened.\n\nThe rest."


def written(*events: Event) -> bytes:
    writer = CompactionWriter(ASKED, TARGET)
    return b"".join(writer.write(event) for event in events)


def objects(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(event.data) for event in feed([data]).events]


def read_back(item: Any) -> object:
    return parse_request(json.dumps({"model": "m", "input": [item]}).encode()).items


def test_codex_gets_exactly_one_item_which_it_can_send_back() -> None:
    events = objects(written(*SUMMARY))
    assert [event["type"] for event in events] == [
        "response.created", "response.in_progress", "response.output_item.added", "response.output_item.done",
        "response.completed",
    ]  # fmt: skip
    assert [event["sequence_number"] for event in events] == [0, 1, 2, 3, 4]
    item = events[3]["item"]
    assert item["type"] == "compaction"
    assert events[4]["response"]["output"] == [item]
    assert events[4]["response"]["usage"]["input_tokens_details"]["cached_tokens"] == 88_000
    assert read_back(item) == (Compacted(text=TEXT),)


def test_the_sdk_reads_it() -> None:
    counted = replace(COUNTED, reasoning_tokens=0)
    data = written(*SUMMARY[:-2], counted, SUMMARY[-1])
    for event in feed([data]).events:
        check_openai_event(event)
    assert [item.type for item in openai_final(data).output] == ["compaction"]


def test_the_path_of_older_codex_gets_what_the_user_said_and_the_item() -> None:
    asked = replace(ASKED, stream=False, purpose=Purpose.COMPACTION_OBJECT)
    compacted = json.loads(write_compaction(asked, TARGET, SUMMARY))
    assert (compacted["object"], compacted["created_at"]) == ("response.compaction", 7)
    said, item = compacted["output"]
    assert read_back(said) == (SAID,)
    assert read_back(item) == (Compacted(text=TEXT),)
    assert compacted["usage"]["output_tokens"] == 500


def test_an_unstreamed_item_is_a_response() -> None:
    response = openai.types.responses.Response.model_validate(
        json.loads(write_compaction(ASKED, TARGET, (*SUMMARY[:-2], Ended(Stop.MAX_TOKENS))))
    )
    assert [item.type for item in response.output] == ["compaction"]


@pytest.mark.parametrize(
    ("events", "code", "message"),
    [
        ((BEGUN, Ended(Stop.END)), "server_error", NO_SUMMARY),
        ((BEGUN, PartStarted(0, PartKind.TEXT), Delta(0, " \n"), Ended(Stop.END)), "server_error", NO_SUMMARY),
        ((*SUMMARY[:-1], Ended(Stop.REFUSAL)), "invalid_prompt", REFUSED),
        ((*SUMMARY[:-1], Ended(Stop.CONTENT_FILTER)), "invalid_prompt", REFUSED),
        ((BEGUN, Broken(ErrorKind.INVALID, 400, CODE, "Full.")), CODE, "Full."),
    ],
)
def test_without_a_summary_there_is_no_compaction(events: tuple[Event, ...], code: str, message: str) -> None:
    told = objects(written(*events))
    assert [event["type"] for event in told[-2:]] == ["error", "response.failed"]
    assert told[-1]["response"]["error"] == {"code": code, "message": message}
    assert told[-2]["sequence_number"] == 2
    if isinstance(events[-1], Ended):
        with pytest.raises(UpstreamError, match=message[:20]):
            write_compaction(ASKED, TARGET, events)
