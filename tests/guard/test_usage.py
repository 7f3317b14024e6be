"""What one request says: the boundaries of R6, and what becomes of observations that add up (R5)."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegate.guard.policy import Policy
from cachegate.guard.usage import Kind, Usage, classify

POLICY = Policy()
LARGE, LARGE_BYTES = POLICY.large_tokens, POLICY.large_bytes

tokens = st.one_of(st.none(), st.integers(0, 2_000_000))
usages = st.builds(Usage, tokens, tokens, tokens)


@pytest.mark.parametrize(
    ("total", "read", "prefix", "input_bytes", "kind"),
    [
        pytest.param(LARGE, 0, 0, 0, Kind.MISS, id="R6 large and nothing read"),
        pytest.param(LARGE - 1, 0, 0, 0, Kind.NEUTRAL, id="R6 one token less than large"),
        pytest.param(2 * LARGE, LARGE, 0, 0, Kind.REUSE, id="R6 as much read as processed"),
        pytest.param(2 * LARGE - 1, LARGE - 1, 0, 0, Kind.MISS, id="R6 one token less read"),
        pytest.param(2 * LARGE - 2, LARGE - 1, 0, 0, Kind.REUSE, id="R6 as much read as processed, less than large"),
        pytest.param(900_000, 75_000, 100_000, 0, Kind.REUSE, id="R6 three quarters of the prefix"),
        pytest.param(900_000, 74_999, 100_000, 0, Kind.MISS, id="R6 one token less than three quarters"),
        pytest.param(4, 3, 4, 0, Kind.REUSE, id="R6 three of four tokens"),
        pytest.param(900_000, 1, 1, 0, Kind.REUSE, id="R6 a prefix of one token"),
        pytest.param(900_000, 0, 0, 0, Kind.MISS, id="R6 no prefix is not covered by reading nothing"),
        pytest.param(1_000, 0, 100_000, 0, Kind.NEUTRAL, id="R6 small and nothing read"),
        pytest.param(2, 1, 0, 0, Kind.REUSE, id="R6 one token read of two"),
        pytest.param(0, 0, 0, 0, Kind.NEUTRAL, id="R6 no tokens at all"),
        pytest.param(100, 150, 0, 0, Kind.REUSE, id="R6 more read than sent: a provider that counts oddly"),
        pytest.param(LARGE, None, 0, 0, Kind.UNREPORTED, id="R6 large, read unknown"),
        pytest.param(LARGE - 1, None, 0, LARGE_BYTES, Kind.NEUTRAL, id="R6 tokens before bytes"),
        pytest.param(None, None, 0, LARGE_BYTES, Kind.UNREPORTED, id="R6 nothing known, large in bytes"),
        pytest.param(None, None, 0, LARGE_BYTES - 1, Kind.NEUTRAL, id="R6 nothing known, one byte less"),
        pytest.param(None, 0, 0, LARGE_BYTES, Kind.UNREPORTED, id="R6 a read of nothing does not tell the total"),
        pytest.param(None, 75_000, 100_000, LARGE_BYTES, Kind.REUSE, id="R6 a covering read needs no total"),
        pytest.param(None, 75_000, 0, LARGE_BYTES, Kind.UNREPORTED, id="R6 a read without prefix and total"),
    ],
)
def test_classify(total: int | None, read: int | None, prefix: int, input_bytes: int, kind: Kind) -> None:
    assert classify(Usage(total, read), prefix, input_bytes, POLICY) is kind


@given(usages, st.integers(0, 2_000_000), st.integers(0, 2_000_000))
def test_r5_what_is_written_is_processed_and_changes_no_kind(usage: Usage, prefix: int, size: int) -> None:
    silent = Usage(usage.input_total, usage.cached_read, None)
    assert classify(usage, prefix, size, POLICY) is classify(silent, prefix, size, POLICY)


@given(usages, st.integers(0, 2_000_000), st.integers(0, 2_000_000))
def test_r5_unknown_is_never_a_measured_miss(usage: Usage, prefix: int, size: int) -> None:
    kind = classify(usage, prefix, size, POLICY)
    if not usage.measured:
        assert kind is not Kind.MISS
    if usage.measured:
        assert kind is not Kind.UNREPORTED


@given(st.integers(0, 2_000_000), st.integers(0, 2_000_000), st.integers(0, 2_000_000), st.integers(1, 500_000))
def test_r6_a_larger_read_never_looks_worse(total: int, read: int, prefix: int, more: int) -> None:
    order = [Kind.MISS, Kind.NEUTRAL, Kind.REUSE]
    less_read = classify(Usage(total, read), prefix, 0, POLICY)
    more_read = classify(Usage(total, read + more), prefix, 0, POLICY)
    assert order.index(more_read) >= order.index(less_read)


@pytest.mark.parametrize("kind", list(Kind), ids=str)
def test_r8a_cold_is_miss_or_unreported(kind: Kind) -> None:
    assert kind.cold is (kind in {Kind.MISS, Kind.UNREPORTED})


@pytest.mark.parametrize(
    ("usage", "uncached"),
    [
        (Usage(10, 4), 6),
        (Usage(10, 0), 10),
        (Usage(10, None), None),
        (Usage(None, 4), None),
        (Usage(), None),
        (Usage(10, 4, 6), 6),
    ],
    ids=str,
)
def test_r5_uncached_is_known_only_when_both_parts_are(usage: Usage, uncached: int | None) -> None:
    assert usage.uncached == uncached
    assert usage.measured is (uncached is not None)


@pytest.mark.parametrize(("older", "newer"), [*itertools.product((None, 0, 7), (None, 0, 9))], ids=str)
def test_r5_known_overrides_unknown_and_never_the_reverse(older: int | None, newer: int | None) -> None:
    expected = older if newer is None else newer
    updated = Usage(older, older, older).updated(Usage(newer, newer, newer))
    assert updated == Usage(expected, expected, expected)


@given(usages, usages, usages)
def test_r5_observations_add_up_in_any_grouping(first: Usage, second: Usage, third: Usage) -> None:
    assert first.updated(second).updated(third) == first.updated(second.updated(third))
    assert first.updated(Usage()) == first == Usage().updated(first)


@given(st.tuples(tokens, tokens, tokens), st.tuples(tokens, tokens, tokens))
def test_r5_each_number_is_kept_for_itself(older: tuple[int | None, ...], newer: tuple[int | None, ...]) -> None:
    updated = Usage(*older).updated(Usage(*newer))
    got = (updated.input_total, updated.cached_read, updated.cache_write)
    assert got == tuple(old if new is None else new for old, new in zip(older, newer, strict=True))
