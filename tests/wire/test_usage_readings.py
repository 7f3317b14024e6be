from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegate.guard.usage import Usage
from cachegate.wire.facts import Protocol
from cachegate.wire.usage_readings import READINGS, UNKNOWN, anthropic, count, fields, known, openai
from wire.usage_cases import CASES, IDS, LATER, UsageCase

UNMEASURED: list[Any] = [None, True, False, -1, 1.0, 0.5, "5", "", [], {}, float("nan")]
SPELLINGS = (
    "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation", "input_tokens_details",
)  # fmt: skip
COUNTS = st.none() | st.booleans() | st.integers(-3, 10**7) | st.floats() | st.text(max_size=3)
DETAILS = st.dictionaries(
    st.sampled_from(["cached_tokens", "cache_write_tokens", "ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"]),
    COUNTS,
)
REPORTS = st.dictionaries(st.sampled_from(SPELLINGS), COUNTS | DETAILS)


def test_no_case_is_left_out_in_silence() -> None:
    tested = {case.name.partition("/")[0] for case in CASES}
    later = [name for names in LATER.values() for name in names]
    assert IDS - tested == set(later)
    assert not tested & set(later)
    assert len(later) == len(set(later))


@pytest.mark.parametrize("case", [case for case in CASES if case.body is not None], ids=lambda case: case.name)
def test_a_whole_answers_usage_is_read(case: UsageCase) -> None:
    usage = READINGS[case.protocol](fields(fields(case.body).get("usage")))
    assert usage == case.usage
    assert usage.uncached == case.uncached


def test_there_is_a_reading_for_every_protocol() -> None:
    assert set(READINGS) == set(Protocol)


@pytest.mark.parametrize("value", [0, 1, 2**60])
def test_a_count_is_an_integer_of_at_least_zero(value: int) -> None:
    assert count(value) == value


@pytest.mark.parametrize("value", UNMEASURED, ids=repr)
def test_nothing_else_is_a_count(value: Any) -> None:
    assert count(value) is None


@pytest.mark.parametrize("value", [None, 1, "x", [], [{"a": 1}]], ids=repr)
def test_only_an_object_has_fields(value: Any) -> None:
    assert fields(value) == {}


def test_a_later_null_or_absent_field_never_erases_a_known_one() -> None:
    assert known({"a": None, "b": 2}, {"a": 1, "b": 1, "c": 1}) == {"a": 1, "b": 2, "c": 1}
    assert known({"a": 0}, {"a": 1}) == {"a": 0}


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
    assert anthropic(usage) == read


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
    assert openai(usage) == read


@pytest.mark.parametrize("value", UNMEASURED, ids=repr)
def test_an_invalid_count_is_unknown_and_never_zero(value: Any) -> None:
    assert anthropic({"input_tokens": 5, "cache_read_input_tokens": value}) == Usage(5)
    assert anthropic({"input_tokens": 5, "cache_creation_input_tokens": value}) == Usage(5)
    assert anthropic({"input_tokens": value, "cache_read_input_tokens": 0}) == Usage(None, 0)
    assert openai({"input_tokens": 5, "input_tokens_details": {"cached_tokens": value}}) == Usage(5)
    assert openai({"input_tokens": 5, "input_tokens_details": {"cache_write_tokens": value}}) == Usage(5)
    assert openai({"input_tokens": value, "input_tokens_details": {"cached_tokens": 0}}) == Usage(None, 0)


@settings(deadline=None)
@given(st.sampled_from(Protocol), REPORTS)
def test_whatever_is_reported_a_measurement_makes_sense(protocol: Protocol, report: dict[str, Any]) -> None:
    usage = READINGS[protocol](report)
    counts = (usage.input_total, usage.cached_read, usage.cache_write)
    assert all(value is None or (type(value) is int and value >= 0) for value in counts)
    assert usage.uncached is None or usage.uncached >= 0
    assert usage.input_total != 0
