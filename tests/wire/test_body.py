import json
import time
import tracemalloc
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.errors import BadInput, ErrorKind
from cachegate.wire.body import JsonObject, decode, encode

LONE = b"\\ud83d"
"""What JavaScript writes for the first half of an emoji cut in two."""
SPACES = st.text(alphabet=" \t\r\n", max_size=3).map(str.encode)


def values(characters: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    text, whole = st.text(characters, max_size=8), st.integers(-(2**53), 2**53)
    leaves = st.none() | st.booleans() | whole | st.floats(allow_nan=False, allow_infinity=False) | text
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3), max_leaves=8
    )


SOUND = values(st.characters(codec="utf-8"))
ANY = values(st.characters(exclude_categories=[]))
"""With lone surrogates."""


@dataclass(frozen=True, slots=True)
class Written:
    """A JSON object, written in one of the many ways there are."""

    body: bytes
    names: tuple[str, ...]
    raws: tuple[bytes, ...]


@st.composite
def keys(draw: st.DrawFn, name: str) -> bytes:
    """Write a key, each of its characters escaped or not."""
    parts = [json.dumps(char, ensure_ascii=draw(st.booleans()))[1:-1] for char in name]
    escaped = [
        f"\\u{ord(part):04x}" if part.isalpha() and part < "\uffff" and draw(st.booleans()) else part for part in parts
    ]
    return f'"{"".join(escaped)}"'.encode()


@st.composite
def raw_values(draw: st.DrawFn, value: Any) -> bytes:
    """Write a value, with some whitespace inside and its surrogates escaped."""
    separators = (draw(st.sampled_from([",", " ,", ",\n"])), draw(st.sampled_from([":", " : "])))
    return json.dumps(value, separators=separators, indent=draw(st.sampled_from([None, 1]))).encode()


@st.composite
def objects(draw: st.DrawFn, *names: str) -> Written:
    """Write an object with `names` and any others, in any order and spacing."""
    others = draw(st.lists(st.text(max_size=5), unique=True, max_size=4))
    ordered = draw(st.permutations(list(dict.fromkeys((*names, *others)))))
    raws = [draw(raw_values(draw(ANY))) for _ in ordered]
    space = [draw(SPACES) for _ in range(4)]
    pairs = [draw(keys(name)) + space[0] + b":" + space[1] + raw for name, raw in zip(ordered, raws, strict=True)]
    body = space[2] + b"{" + space[0] + (space[1] + b"," + space[3]).join(pairs) + space[3] + b"}" + space[2]
    return Written(body, tuple(ordered), tuple(raws))


@settings(deadline=None, max_examples=200)
@given(objects())
def test_each_span_is_the_value_as_it_stands_in_the_body(written: Written) -> None:
    body = JsonObject(written.body)
    assert set(body.spans) == set(written.names)
    for name, raw in zip(written.names, written.raws, strict=True):
        start, end = body.spans[name]
        assert written.body[start:end] == raw
        assert body.size(name) == len(raw)
        assert len(body.raw(name)) == (0 if raw == b"null" else len(raw))


@settings(deadline=None, max_examples=200)
@given(objects("model"), st.text(min_size=1, max_size=9))
def test_putting_another_value_in_a_span_changes_nothing_else(written: Written, model: str) -> None:
    start, end = JsonObject(written.body).spans["model"]
    spliced = written.body[:start] + encode(model) + written.body[end:]
    assert json.loads(spliced) == {**json.loads(written.body), "model": model}
    others = [name for name in written.names if name != "model"]
    before, after = JsonObject(written.body), JsonObject(spliced)
    assert [after.raw(name) for name in others] == [before.raw(name) for name in others]


@settings(deadline=None, max_examples=200)
@given(objects("model"), st.data())
def test_a_field_sent_twice_is_refused_wherever_it_stands(written: Written, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(written.names))
    again = data.draw(keys(name)) + b":" + data.draw(raw_values(data.draw(ANY)))
    opening = written.body.index(b"{") + 1
    closing = written.body.rindex(b"}")
    first = written.body[:opening] + again + b"," + written.body[opening:]
    last = written.body[:closing] + b"," + again + written.body[closing:]
    for body in (first, last):
        with pytest.raises(BadInput, match="twice"):
            JsonObject(body)


def test_a_repetition_cannot_hide_behind_a_long_value() -> None:
    """The walk over the text once trusted the length of long values: this body brought it out even."""
    last = b'["' + b"v" * 5_000 + b'"]'
    decoy = b',"twelve_bytes":'
    begun = b'{"a":"'.ljust(len(last) - len(b'[],"x":') - 1, b"l") + b'"'
    long = begun + decoy + b'"' + b"m" * 6_000 + b'"}'
    body = b'{"model":"m","input":[],"x":' + long + b',"input":' + last + b"}"
    assert json.loads(body)["input"] == json.loads(last)
    with pytest.raises(BadInput, match="twice"):
        JsonObject(body)


@pytest.mark.parametrize("body", [b"{}", b" { } ", b"\r\n{\t}\n"])
def test_an_empty_object_has_no_fields(body: bytes) -> None:
    empty = JsonObject(body)
    assert empty.spans == {}
    assert (empty.raw("a"), empty.size("a"), empty.value("a"), empty.text("a"), empty.items("a")) == (
        b"", 0, None, None, [],
    )  # fmt: skip


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"1", b"null", b"true", b'[{"model":"m"}]'])
def test_json_that_is_no_object_is_refused_as_such(body: bytes) -> None:
    with pytest.raises(BadInput, match="not an object"):
        JsonObject(body)


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"{", b'{"a"', b'{"a":', b'{"a":1', b'{"a":1,}', b'{"a":1}}', b'{"a":1} x', b"{'a':1}", b"{a:1}",
        b'{"a":01}', b'{"a":NaN}', b'{"a":tru}', b'{"a":"x}', b'{"a":"\n"}', b'{"a":"\\q"}', b'{"a":"\\u12"}',
        b'{"\xff":1}', b"\xef\xbb\xbf{}", '{"a":1}'.encode("utf-16"), b"\x28\xb5\x2f\xfd",
        b'{"a":"\\ud8"}"}', b'{"a":"\\udz00"}', b'{"a":"' + LONE + b'"', b'{"a":"' + LONE + b'",}', b'{"a":"\\',
    ],
)  # fmt: skip
def test_broken_json_is_refused_as_such(body: bytes) -> None:
    with pytest.raises(BadInput, match="not valid JSON") as refused:
        JsonObject(body)
    assert (refused.value.kind, refused.value.status) == (ErrorKind.INVALID, 400)


@pytest.mark.parametrize("depth", [5_000, 1_000_000])
def test_a_nest_too_deep_is_refused_as_such(depth: int) -> None:
    for body in (b'{"a":' + b"[" * depth + b"]" * depth + b"}", b'{"a":' * depth + b"1" + b"}" * depth):
        with pytest.raises(BadInput, match="nested too deeply"):
            JsonObject(body)


def test_what_lies_too_deep_below_a_field_is_unknown_and_no_crash() -> None:
    depth = 100_000
    assert decode(b"[" * depth + b"]" * depth) is None


@pytest.mark.parametrize(
    "text",
    [
        LONE, b"\\uD83D", b"\\udfff", LONE + LONE, LONE + b"\\n", b"\\\\" + LONE, b"\\ude42" + LONE, LONE + b"\\u0041",
    ],
)  # fmt: skip
def test_lone_surrogates_are_read_and_the_bytes_keep_their_places(text: bytes) -> None:
    value = b'{"a":["x' + text + b'y"]}'
    body = b'{"before":' + value + b',"model":"m' + text + b'","k' + text + b'":1,"after":2}'
    fields = JsonObject(body)
    start, end = fields.spans["before"]
    assert body[start:end] == value
    assert fields.value("after") == 2
    model = fields.text("model")
    assert model is not None
    assert model.startswith("m")
    assert "\ufffd" in model
    assert fields.value("before") == {"a": [f"x{model[1:]}y"]}


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (b"\\ud83d\\ude42", "🙂"),
        (b"\\uD83D\\uDE42" + LONE, "🙂\ufffd"),
        (LONE + b"\\ud83d\\ude42", "\ufffd🙂"),
        (b"\\\\ud83d" + LONE, "\\ud83d\ufffd"),
        (b"\\\\\\\\" + LONE + b"\\\\", "\\\\\ufffd\\"),
        (LONE + b'\\"', '\ufffd"'),
    ],
)
def test_whole_pairs_and_escaped_backslashes_are_no_lone_surrogates(text: bytes, read: str) -> None:
    assert JsonObject(b'{"a":"' + text + b'"}').text("a") == read


def test_half_an_emoji_makes_no_value_unknown() -> None:
    assert decode(b'{"text":"' + LONE + b'","n":1}') == {"text": "\ufffd", "n": 1}
    assert decode(b'{"text":"' + LONE) is None


def test_accessors_give_what_is_there_and_nothing_else() -> None:
    body = JsonObject(b'{"s":"\\u0061b","n":null,"o":{"a":1},"l":[1, {"b":2},"c"],"e":[],"t":true,"bad":"\xff"}')
    assert (body.text("s"), body.text("n"), body.text("o"), body.text("t"), body.text("bad")) == (
        "ab", None, None, None, None,
    )  # fmt: skip
    assert (body.value("o"), body.value("t"), body.value("n"), body.value("bad")) == ({"a": 1}, True, None, None)
    assert [bytes(item) for item in body.items("l")] == [b"1", b'{"b":2}', b'"c"']
    assert (body.items("e"), body.items("o"), body.items("s"), body.items("n")) == ([], [], [], [])
    assert (body.raw("n"), body.size("n"), body.raw("e"), body.size("l")) == (b"", 4, b"[]", 16)


@settings(deadline=None)
@given(SOUND)
def test_what_is_encoded_is_compact_and_decoded_again(value: Any) -> None:
    text = encode(value)
    assert decode(text) == value
    assert b"\n" not in text


@pytest.mark.parametrize("raw", [b"", b"{", b"[1", b"\xff", b'"\xff"', b"nul", b"1 2", b'"' + LONE])
def test_what_is_no_json_decodes_to_unknown(raw: bytes) -> None:
    assert decode(raw) is None


def test_a_hostile_key_or_gap_costs_neither_time_nor_memory() -> None:
    """Backtracking took 1.8 s and 600 MB for a key of 5 MB, and minutes for a repetition after some spaces."""
    size = 2_000_000
    hostile = [
        b'{"' + b"k" * size + b'":1}',
        b'{"' + b"\\n" * size + b'":1}',
        b'{"a":"' + LONE + b"\\n" * size + b'"}',
        b'{"a":1' + b" " * size + b"}",
        b'{"a":1' + b" " * size + b',"a":1}',
        b'{"a":1' + b"\n" * size + b",",
    ]
    begun = time.perf_counter()
    for body in hostile:
        tracemalloc.start()
        try:
            assert JsonObject(body).spans
        except BadInput:
            pass
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 8 * len(body)
    assert time.perf_counter() - begun < 10


def test_a_field_that_is_no_number_for_us_is_unknown_or_refused_as_its_reader_wants() -> None:
    body = JsonObject(b'{"a":1e999,"b":null,"c":2}')
    assert (body.value("a"), body.sound("b"), body.sound("c"), body.sound("d")) == (None, None, 2, None)
    with pytest.raises(BadInput, match=r"^a: "):
        body.sound("a")
