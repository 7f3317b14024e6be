import json
from typing import Any

import pytest

from cachegate.wire.body import encode
from cachegate.wire.codecs import CODECS
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import PartEnded, Reasoning, Request, Target
from cachegate.wire.plain_thoughts import goes_back, is_plain
from cachegate.wire.quirks import Quirk

PLAIN = frozenset({Quirk.PLAIN_THOUGHTS})
ASKED = Request("m", stream=False)
UPSTREAMS = (Protocol.MESSAGES, Protocol.RESPONSES)
WHOLE = {
    Protocol.MESSAGES: {
        "type": "message",
        "id": "msg_1",
        "content": [{"type": "thinking", "thinking": "Hm.", "signature": ""}, {"type": "text", "text": "Ok"}],
        "stop_reason": "end_turn",
    },
    Protocol.RESPONSES: {
        "id": "resp_1",
        "status": "completed",
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "",
             "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Ok"}]},
        ],
    },
}  # fmt: skip
"""As llama.cpp answers."""


def target(upstream: Protocol, *, binding: str = "local", quirks: frozenset[str] = PLAIN) -> Target:
    return Target("m", binding, quirks=quirks, origin=upstream)


def handed_back(client: Protocol, answer: dict[str, Any]) -> Request:
    """Parse the next request of a client that keeps what it was told."""
    user = {"role": "user", "content": "And?"}
    match client:
        case Protocol.MESSAGES:
            kept = [{"role": "assistant", "content": answer["content"]}]
        case Protocol.RESPONSES:
            kept = answer["output"]
        case Protocol.CHAT:
            kept = [answer["choices"][0]["message"]]
    named = "input" if client is Protocol.RESPONSES else "messages"
    return CODECS[client].parse_request(encode({"model": "m", "max_tokens": 9, named: [user, *kept, user]}))


def thoughts_in(upstream: Protocol, body: bytes) -> list[Any]:
    sent = json.loads(body)
    if upstream is Protocol.RESPONSES:
        return [item for item in sent["input"] if item["type"] == "reasoning"]
    blocks = [block for message in sent["messages"] for block in message["content"]]
    return [block for block in blocks if block["type"] == "thinking"]


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", Protocol)
def test_a_client_of_any_protocol_hands_them_back_to_their_own_server_only(
    client: Protocol, upstream: Protocol
) -> None:
    here = target(upstream)
    events = CODECS[upstream].read_body(ASKED, here, encode(WHOLE[upstream]))
    request = handed_back(client, json.loads(CODECS[client].write_body(ASKED, here, events)))
    (thought,) = thoughts_in(upstream, CODECS[upstream].render_request(request, here))
    if upstream is Protocol.MESSAGES:
        assert thought == {"type": "thinking", "thinking": "Hm.", "signature": ""}
    else:
        thought.pop("id", None)
        said = [{"type": "reasoning_text", "text": "Hm."}]
        assert thought == {"type": "reasoning", "summary": [], "content": said}
    signing = target(upstream, quirks=frozenset())
    assert thoughts_in(upstream, CODECS[upstream].render_request(request, signing)) == []
    if client is not Protocol.CHAT:  # which cannot say whose they are
        another = target(upstream, binding="another")
        assert thoughts_in(upstream, CODECS[upstream].render_request(request, another)) == []


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_who_signs_its_thoughts_gets_none_without(upstream: Protocol) -> None:
    here = target(upstream, quirks=frozenset())
    events = CODECS[upstream].read_body(ASKED, here, encode(WHOLE[upstream]))
    for client in Protocol:
        request = handed_back(client, json.loads(CODECS[client].write_body(ASKED, here, events)))
        assert thoughts_in(upstream, CODECS[upstream].render_request(request, here)) == []


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize(
    ("thought", "back"),
    [
        (Reasoning("Hm.", "reasoning_content", Protocol.CHAT), True),
        (Reasoning("Hm.", "reasoning", Protocol.CHAT, binding="local"), True),
        (Reasoning("Hm.", "reasoning_content", Protocol.CHAT, binding="another"), False),
        (Reasoning("Hm.", '[{"type":"reasoning.text"}]', Protocol.CHAT), False),
        (Reasoning("Hm.", None, Protocol.CHAT), False),
        (Reasoning("", "blob", Protocol.MESSAGES, redacted=True), False),
        (Reasoning("Hm.", "sig", Protocol.MESSAGES), False),
        (Reasoning("Hm.", "gAAAA", Protocol.RESPONSES), False),
        (Reasoning("Hm."), False),
    ],
)
def test_a_text_goes_back_only_if_it_is_all_there_was(upstream: Protocol, thought: Reasoning, back: bool) -> None:
    assert goes_back(thought, target(upstream), upstream) == back
    assert not goes_back(thought, target(upstream, quirks=frozenset()), upstream)


def test_a_value_or_no_text_makes_a_thought_no_plain_one() -> None:
    here = target(Protocol.MESSAGES)
    assert is_plain("Hm.", PartEnded(0), here)
    assert not is_plain("Hm.", PartEnded(0, "sig"), here)
    assert not is_plain("", PartEnded(0), here)
    assert not is_plain("Hm.", PartEnded(0), target(Protocol.MESSAGES, quirks=frozenset()))
