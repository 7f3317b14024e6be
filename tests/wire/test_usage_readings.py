import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.guard.usage import Usage
from cachegate.wire.usage_readings import (
    READINGS,
    UNKNOWN,
    Format,
    Measurement,
    Reading,
    count,
    fields,
    items,
    reading_of,
    side_calls,
)
from wire.usage_cases import CASES, IDS, LATER, UsageCase

UNMEASURED: list[Any] = [None, True, False, -1, 1.0, 0.5, "5", "", [], {}, float("nan")]
ROWS = [(name, shape) for name, shapes in READINGS.items() for shape in shapes]
ANTHROPIC = reading_of("anthropic", Format.MESSAGES)
OPENAI = reading_of("openai", Format.RESPONSES)
CHAT = reading_of("openai", Format.CHAT)
QWEN = reading_of("qwen", Format.MESSAGES)
XAI = reading_of("xai", Format.CHAT)


def paths_of(reading: Reading) -> list[str]:
    spellings = (*reading.total, *reading.read, *reading.write, *reading.zero_is_unknown_beside)
    return sorted({term.removesuffix("?") for spelling in spellings for term in spelling.split(" + ")})


def report_of(values: dict[str, Any]) -> dict[str, Any]:
    """Put values at their paths."""
    report: dict[str, Any] = {}
    for path, value in values.items():
        *above, last = path.split(".")
        place = report
        for name in above:
            if name.endswith("[]"):
                place = place.setdefault(name.removesuffix("[]"), [{}])[0]
            else:
                place = place.setdefault(name, {})
        place[last] = value
    return report


def test_no_case_is_left_out_in_silence() -> None:
    tested = {case.name.partition("/")[0] for case in CASES}
    later = [name for names in LATER.values() for name in names]
    assert IDS - tested == set(later)
    assert not tested & set(later)
    assert len(later) == len(set(later))


@pytest.mark.parametrize("case", [case for case in CASES if case.switch], ids=lambda case: case.name)
def test_the_switch_makes_any_provider_one_that_fills_in_zeros(case: UsageCase) -> None:
    """The table knows these providers; behind a proxy of another name the switch does the same."""
    plain = reading_of("openai", case.shape, zero_is_unknown=True)
    report = next(
        fields(found)
        for holder in (case.body, *(event for event in case.events if isinstance(event, dict)))
        if (found := fields(holder).get("usage") or fields(fields(holder).get("response")).get("usage"))
    )
    assert plain.usage(report) == case.usage
    assert reading_of(case.provider, case.shape).usage(report) == case.usage


def test_there_is_a_row_for_every_provider_and_format_named_in_a_case() -> None:
    assert {(case.provider, case.shape) for case in CASES} <= set(ROWS)
    assert {shape for _, shape in ROWS} == set(Format)


@pytest.mark.parametrize(("name", "shape"), ROWS)
def test_every_row_reads_what_it_spells(name: str, shape: Format) -> None:
    """Each spelling of a row is found at its path, and adds up as its family does."""
    reading = reading_of(name, shape)
    for total, read, write in itertools.product(reading.total, reading.read, reading.write or ("",)):
        spelled = [[term.removesuffix("?") for term in part.split(" + ") if term] for part in (total, read, write)]
        values = dict.fromkeys(spelled[0], 1_000) | dict.fromkeys(spelled[1], 100) | dict.fromkeys(spelled[2], 10)
        usage = reading.usage(report_of(values))
        whole = sum(values[path] for path in spelled[0])
        written = sum(values[path] for path in spelled[2]) if write else None
        assert usage == Usage(whole + 100 + (written or 0) if reading.exclusive else whole, 100, written)


@pytest.mark.parametrize("value", [0, 1, 2**60])
def test_a_count_is_an_integer_of_at_least_zero(value: int) -> None:
    assert count(value) == value


@pytest.mark.parametrize("value", UNMEASURED, ids=repr)
def test_nothing_else_is_a_count(value: Any) -> None:
    assert count(value) is None


@pytest.mark.parametrize("value", [None, 1, "x", [], [{"a": 1}]], ids=repr)
def test_only_an_object_has_fields(value: Any) -> None:
    assert fields(value) == {}


@pytest.mark.parametrize("value", [None, 1, "x", {}, {"a": [1]}], ids=repr)
def test_only_an_array_has_items(value: Any) -> None:
    assert items(value) == []


def test_a_later_null_or_absent_or_invalid_field_never_erases_a_known_one() -> None:
    measurement = Measurement(CHAT)
    measurement.add({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2}})
    for nothing in (None, {}, {"cached_tokens": None}, {"cached_tokens": -1}, {"cached_tokens": "7"}, "x"):
        assert measurement.add({"prompt_tokens": None, "prompt_tokens_details": nothing}) == Usage(9, 4, 2)
        assert measurement.add({"prompt_tokens_details": nothing}) == Usage(9, 4, 2)
    assert measurement.add({"prompt_tokens_details": {"cached_tokens": 0}}) == Usage(9, 0, 2)


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ({}, UNKNOWN),
        ({"output_tokens": 7}, UNKNOWN),
        ({"input_tokens": 5}, Usage(5)),
        ({"cache_read_input_tokens": 9}, Usage(None, 9)),
        ({"input_tokens": 5, "cache_read_input_tokens": 0}, Usage(5, 0)),
        ({"input_tokens": 0, "cache_read_input_tokens": 9}, Usage(9, 9)),
        ({"input_tokens": 5, "cache_creation_input_tokens": 6}, Usage(11, None, 6)),
        ({"input_tokens": 5, "cache_creation": {"ephemeral_1h_input_tokens": 6}}, Usage(11, None, 6)),
        ({"input_tokens": 5, "cache_creation": {}}, Usage(5)),
        ({"input_tokens": 5, "cache_creation": None}, Usage(5)),
        ({"input_tokens": 1, "cache_creation_input_tokens": 2, "cache_creation": {"ephemeral_5m_input_tokens": 9}},
         Usage(3, None, 2)),
        ({"input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}, UNKNOWN),
    ],
)  # fmt: skip
def test_anthropic_counts_leave_each_other_out(usage: dict[str, Any], read: Usage) -> None:
    assert ANTHROPIC.usage(usage) == read


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ({}, UNKNOWN),
        ({"output_tokens": 7}, UNKNOWN),
        ({"input_tokens": 5}, Usage(5)),
        ({"input_tokens": 5, "input_tokens_details": None}, Usage(5)),
        ({"input_tokens": 5, "input_tokens_details": {}}, Usage(5)),
        ({"input_tokens": 5, "input_tokens_details": {"cached_tokens": 5}}, Usage(5, 5)),
        ({"input_tokens": 5, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 4}}, Usage(5, 0, 4)),
        ({"input_tokens": 5, "input_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 1}}, Usage(5)),
        ({"input_tokens_details": {"cached_tokens": 6}}, Usage(None, 6)),
        ({"input_tokens": 0, "input_tokens_details": {"cached_tokens": 0}}, UNKNOWN),
    ],
)
def test_openai_counts_are_parts_of_the_whole(usage: dict[str, Any], read: Usage) -> None:
    assert OPENAI.usage(usage) == read


@pytest.mark.parametrize("value", UNMEASURED, ids=repr)
def test_an_invalid_count_is_unknown_and_never_zero(value: Any) -> None:
    assert ANTHROPIC.usage({"input_tokens": 5, "cache_read_input_tokens": value}) == Usage(5)
    assert ANTHROPIC.usage({"input_tokens": 5, "cache_creation_input_tokens": value}) == Usage(5)
    assert ANTHROPIC.usage({"input_tokens": value, "cache_read_input_tokens": 0}) == Usage(None, 0)
    assert OPENAI.usage({"input_tokens": 5, "input_tokens_details": {"cached_tokens": value}}) == Usage(5)
    assert OPENAI.usage({"input_tokens": 5, "input_tokens_details": {"cache_write_tokens": value}}) == Usage(5)
    assert OPENAI.usage({"input_tokens": value, "input_tokens_details": {"cached_tokens": 0}}) == Usage(None, 0)


def chat(total: int | None, read: int | None = None, write: int | None = None) -> dict[str, Any]:
    return {"prompt_tokens": total, "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": write}}


@pytest.mark.parametrize(
    ("report", "usage", "inconsistent"),
    [
        (chat(100, 100, 0), Usage(100, 100, 0), False),
        (chat(100, 101), Usage(100), True),
        (chat(100, 50, 101), Usage(100), True),
        (chat(100, None, 101), Usage(100), True),
        (chat(None, 101), Usage(None, 101), False),
    ],
)
def test_a_part_larger_than_the_whole_is_nonsense_and_not_clamped(
    report: dict[str, Any], usage: Usage, inconsistent: bool
) -> None:
    measurement = Measurement(CHAT)
    assert (measurement.add(report), measurement.inconsistent) == (usage, inconsistent)


def test_a_contradiction_does_not_spoil_what_was_known_before() -> None:
    measurement = Measurement(CHAT)
    measurement.add(chat(100, 50))
    assert measurement.add(chat(40)) == Usage(100, 50)
    assert measurement.inconsistent
    assert measurement.add(chat(120, 60)) == Usage(120, 60)
    assert not measurement.inconsistent


def test_xai_leaves_the_cached_tokens_out_where_they_are_more_than_the_prompt() -> None:
    assert XAI.usage(chat(900, 70_000)) == Usage(70_900, 70_000)
    assert XAI.usage(chat(900, 900)) == Usage(900, 900)
    assert XAI.usage(chat(0, 70_000)) == Usage(70_000, 70_000)
    assert XAI.usage(chat(0, 0)) == UNKNOWN
    adding = {name for name, shape in ROWS if reading_of(name, shape).read_beyond_total == "add"}
    assert adding == {"xai"}


@pytest.mark.parametrize(
    ("reports", "usage"),
    [
        ([{"input_tokens": 70_010}, {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 70_012}],
         Usage(70_012, 70_012, 0)),
        ([{"input_tokens": 70_010}, {"cache_read_input_tokens": 60_000}], Usage(70_010, 60_000)),
        ([{"input_tokens": 70_010}, {"cache_read_input_tokens": 60_000}, {"cache_read_input_tokens": 60_001}],
         Usage(70_010, 60_001)),
        ([{"input_tokens": 70_010}, {"cache_read_input_tokens": 40_000, "cache_creation_input_tokens": 30_011}],
         Usage(70_011, 40_000, 30_011)),
        # The cache fields came first, or together with the input: as with anybody else.
        ([{"input_tokens": 10, "cache_read_input_tokens": 70_000}, {"cache_read_input_tokens": 70_001}],
         Usage(70_011, 70_001)),
        ([{"input_tokens": 70_010}, {"input_tokens": 10, "cache_read_input_tokens": 70_000}], Usage(70_010, 70_000)),
        ([{"cache_read_input_tokens": 70_000}, {"input_tokens": 10}], Usage(70_010, 70_000)),
        ([{"input_tokens": 70_010}, {"output_tokens": 5}], Usage(70_010)),
    ],
)  # fmt: skip
def test_qwens_late_cache_fields_are_parts_of_what_it_said_first(reports: list[dict[str, Any]], usage: Usage) -> None:
    measurement = Measurement(QWEN)
    assert [measurement.add(report) for report in reports][-1] == usage
    late = {name for name, shape in ROWS if reading_of(name, shape).late_cache_fields_inclusive}
    assert late == {"qwen"}


def test_the_false_zeros_are_those_of_the_list() -> None:
    filled = {(name, shape) for name, shape in ROWS if reading_of(name, shape).zero_is_unknown}
    assert filled == {
        ("ollama", Format.RESPONSES), ("ollama", Format.CHAT), ("ollama", Format.MESSAGES),
        ("lmstudio", Format.RESPONSES), ("lmstudio", Format.CHAT), ("lmstudio", Format.MESSAGES),
        ("vllm", Format.RESPONSES), ("sglang", Format.RESPONSES), ("xai-grpc", Format.CHAT),
    }  # fmt: skip
    assert {name for name, shape in ROWS if reading_of(name, shape).zero_is_unknown_beside} == {"sglang"}


@pytest.mark.parametrize(("name", "shape"), ROWS)
def test_the_switch_keeps_positive_numbers_and_forgets_zeros(name: str, shape: Format) -> None:
    reading = reading_of(name, shape, zero_is_unknown=True)
    assert reading.zero_is_unknown
    path = reading.read[0]
    total = {term.removesuffix("?"): 1_000 for term in reading.total[0].split(" + ")}
    assert reading.usage(report_of(total | {path: 0})).cached_read is None
    assert reading.usage(report_of(total | {path: 9})).cached_read == 9
    measurement = Measurement(reading)
    measured = measurement.add(report_of(total | {path: 9}))
    assert measurement.add(report_of(total | {path: 0})) == measured, "a filled-in 0 erases no evidence"


def test_sglangs_zero_is_measured_unless_images_brought_it_along() -> None:
    sglang = reading_of("sglang", Format.CHAT)
    details: dict[str, Any] = {"cached_tokens": 0, "image_tokens": 900}
    assert sglang.usage({"prompt_tokens": 70_000, "prompt_tokens_details": details}) == Usage(70_000)
    for image in (None, 0):
        details = {"cached_tokens": 0, "image_tokens": image}
        assert sglang.usage({"prompt_tokens": 70_000, "prompt_tokens_details": details}) == Usage(70_000, 0)
    measurement = Measurement(sglang)
    measurement.add({"prompt_tokens": 70_000, "prompt_tokens_details": {"cached_tokens": 0}})
    assert measurement.add({"prompt_tokens_details": {"image_tokens": 900}}) == Usage(70_000, 0), "as it was recorded"
    details = {"cached_tokens": 64, "image_tokens": 900}
    assert sglang.usage({"prompt_tokens": 70_000, "prompt_tokens_details": details}) == Usage(70_000, 64)


@pytest.mark.parametrize(
    ("name", "shape", "report", "usage"),
    [
        ("mistral", Format.CHAT, {"prompt_tokens": 9, "num_cached_tokens": 4, **chat(9, 3)}, Usage(9, 4)),
        ("mistral", Format.CHAT, chat(9, 3), Usage(9, 3)),
        ("mistral", Format.CHAT, {"prompt_tokens": 9, "prompt_token_details": {"cached_tokens": 2}}, Usage(9, 2)),
        ("llamacpp", Format.CHAT, {"timings": {"prompt_n": 5}}, UNKNOWN),
        ("llamacpp", Format.CHAT, {"timings": {"cache_n": 5}}, Usage(None, 5)),
        ("llamacpp", Format.CHAT, {"timings": {"cache_n": 5, "prompt_n": 0}}, Usage(5, 5)),
        ("llamacpp", Format.CHAT, {**chat(9, 4), "timings": {"cache_n": 1, "prompt_n": 1}}, Usage(9, 4)),
        ("gemini-native", Format.GEMINI, {"toolUsePromptTokenCount": 5}, UNKNOWN),
        ("gemini-native", Format.GEMINI, {"promptTokenCount": 9, "toolUsePromptTokenCount": 5}, Usage(14)),
        ("bedrock", Format.BEDROCK, {"inputTokens": 1, "cacheDetails": [{"ttl": "5m", "inputTokens": 2}, 7,
         {"ttl": "1h", "inputTokens": 3}]}, Usage(6, None, 5)),
        ("bedrock", Format.BEDROCK, {"inputTokens": 1, "cacheDetails": []}, Usage(1)),
        ("bedrock", Format.BEDROCK, {"inputTokens": 1, "cacheDetails": {"inputTokens": 2}}, Usage(1)),
        ("vllm", Format.CHAT, {"prompt_tokens": 9, "prompt_tokens_details": {"created_cache_tokens": 4}},
         Usage(9, None, 4)),
        ("copilot", Format.CHAT, chat(9, 4, 3), Usage(9, 4)),
        ("xai-grpc", Format.CHAT, {"prompt_tokens": 9, "cached_prompt_text_tokens": 0}, Usage(9)),
        ("xai-grpc", Format.CHAT, {"prompt_tokens": 9, "cached_prompt_text_tokens": 4}, Usage(9, 4)),
        ("zai", Format.MESSAGES, {"input_tokens": 0, "cache_read_input_tokens": 0}, UNKNOWN),
        ("ollama", Format.CHAT, chat(9, 0), Usage(9)),
        ("lmstudio", Format.CHAT, chat(9, 0), Usage(9)),
    ],
)  # fmt: skip
def test_what_is_particular_about_a_provider(name: str, shape: Format, report: dict[str, Any], usage: Usage) -> None:
    assert reading_of(name, shape).usage(report) == usage


def test_calls_on_the_side_are_read_apart() -> None:
    compaction = {"type": "compaction", "input_tokens": 25, "cache_read_input_tokens": 160_000}
    usage = {"input_tokens": 14, "iterations": [compaction, {"type": "message", "input_tokens": 14}, {}, 7, None]}
    assert side_calls(usage, ANTHROPIC)[0] == ("compaction", Usage(160_025, 160_000))
    assert {name for name, _ in side_calls(usage, ANTHROPIC)} == {"compaction", "None"}
    assert ANTHROPIC.usage(usage) == Usage(14)
    for nothing in ({}, {"iterations": None}, {"iterations": 7}):
        assert side_calls(nothing, ANTHROPIC) == ()


COUNTS = st.none() | st.booleans() | st.integers(-3, 10**7) | st.floats() | st.text(max_size=3)
JSON = st.recursive(
    COUNTS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
)


@st.composite
def reports(draw: st.DrawFn, reading: Reading) -> dict[str, Any]:
    """Draw a report with the fields that a reading looks for, of any type, and what may stand in their place."""
    values = draw(st.dictionaries(st.sampled_from(paths_of(reading)), COUNTS, max_size=6))
    report = report_of(values)
    for name in draw(st.sets(st.sampled_from(sorted(report)), max_size=1)) if report else ():
        report[name] = draw(JSON)
    return report


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_whatever_is_reported_a_measurement_makes_sense(data: st.DataObject) -> None:
    name, shape = data.draw(st.sampled_from(ROWS))
    reading = reading_of(name, shape, zero_is_unknown=data.draw(st.booleans()))
    told = [data.draw(reports(reading)) for _ in range(data.draw(st.integers(1, 4)))]
    measurement, folded = Measurement(reading), Usage()
    for report in told:
        before = measurement.usage
        usage = measurement.add(report)
        folded = folded.updated(usage)
        counts = (usage.input_total, usage.cached_read, usage.cache_write)
        assert all(value is None or (type(value) is int and value >= 0) for value in counts)
        assert usage.uncached is None or usage.uncached >= 0
        assert usage.input_total != 0
        known = (before.input_total, before.cached_read, before.cache_write)
        assert all(now is not None for now, then in zip(counts, known, strict=True) if then is not None)
    assert folded == measurement.usage, "the road folds to what the reader knows"
    zeros = [path for report in told for path in reading.counts(report) if reading.counts(report)[path] == 0]
    if 0 in {measurement.usage.cached_read, measurement.usage.cache_write}:
        assert zeros, "a 0 was reported, never made of nothing"
        assert not reading.zero_is_unknown


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(ROWS), JSON, JSON)
def test_any_json_is_read_without_a_crash(row: tuple[str, Format], first: Any, second: Any) -> None:
    measurement = Measurement(reading_of(*row))
    for value in (first, second):
        measurement.add(fields(value))
        side_calls(fields(value), reading_of(*row))
    assert measurement.usage == UNKNOWN, "no field of any spelling is that short"


def test_a_row_is_a_value() -> None:
    with pytest.raises(KeyError):
        reading_of("nobody", Format.CHAT)
    with pytest.raises(KeyError):
        reading_of("anthropic", Format.CHAT)
    assert replace(ANTHROPIC) == ANTHROPIC
