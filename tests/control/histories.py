"""Histories as a host makes them, drawn by hypothesis."""

from hypothesis import strategies as st

from cachegate.control.turn_request import compacted
from cachegate.wire.facts import Protocol
from cachegate.wire.hub import Image, Item, Message, Reasoning, Role, Text, ToolCall, ToolRef, ToolResult

texts = st.sampled_from(("Fix it.", "Done.", " led", "é\U0001f642", "\n\nevent: x\n", "cachegate1.AAAA")) | st.text(
    st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12
)
said = texts.filter(str.strip)
images = st.sampled_from((Image(url="https://example.test/a.png"), Image(url="data:image/png;base64,iVBORw0KGgo=")))
parts = st.lists(st.builds(Text, texts) | images, min_size=1, max_size=3).map(tuple)
questions = st.builds(lambda more, last: Message(Role.USER, (*more, Text(last))), parts, said)
names = st.sampled_from(("look_up", "Read", "a__b"))
arguments = st.sampled_from(("{}", '{"a": 1}', '{ "é" : "\\u00e9" }', "no json", "[1]"))


@st.composite
def histories(draw: st.DrawFn, protocol: Protocol) -> tuple[Item, ...]:
    items: list[Item] = list(draw(st.just(()) | said.map(compacted)))
    for number in range(draw(st.integers(0, 4))):
        items.append(draw(questions))
        for round_number in range(draw(st.integers(0, 2))):
            if draw(st.booleans()):
                redacted = protocol is Protocol.MESSAGES and draw(st.booleans())
                item_id = "rs_1" if protocol is Protocol.RESPONSES and draw(st.booleans()) else None
                words = "" if redacted else draw(texts)
                items.append(Reasoning(words, draw(said), protocol, item_id, redacted))
            call_id = f"call_{number}_{round_number}"
            items.append(ToolCall(call_id, ToolRef(draw(names)), draw(arguments)))
            items.append(ToolResult(call_id, draw(parts), is_error=draw(st.booleans())))
        if draw(st.booleans()):
            items.append(Message(Role.ASSISTANT, (Text(draw(said)),), draw(st.sampled_from((None, "final_answer")))))
    return tuple(items)
