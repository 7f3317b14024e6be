"""The key of a budget: different for whatever differs, and silent about all of it (R1, R2)."""

from dataclasses import replace

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from cachegate.guard.scope import KEY_BYTES, SECRET_BYTES, Mode, Scope, budget_key

SECRET = bytes(range(SECRET_BYTES))
SCOPE = Scope(Mode.CHAT, "alice", "openrouter", "qwen/qwen3-coder", "codex:0192-thread")

texts = st.text(max_size=12)
scopes = st.builds(Scope, st.sampled_from(Mode), texts, texts, texts, st.one_of(st.none(), texts))


@pytest.mark.parametrize(
    "other",
    [
        replace(SCOPE, mode=Mode.COMPACTION),
        replace(SCOPE, mode=Mode.AUXILIARY),
        replace(SCOPE, tenant="bob"),
        replace(SCOPE, tenant=""),
        replace(SCOPE, binding="openai"),
        replace(SCOPE, model="qwen/qwen3-coder-plus"),
        replace(SCOPE, caller="codex:0193-thread"),
        replace(SCOPE, caller="codex:0192-thread/agent-1"),
        replace(SCOPE, caller=None),
        replace(SCOPE, caller=""),
    ],
    ids=str,
)
def test_r1_whatever_differs_has_another_budget(other: Scope) -> None:
    assert budget_key(other, SECRET) != budget_key(SCOPE, SECRET)


def test_r1_the_same_has_the_same_budget() -> None:
    assert budget_key(replace(SCOPE), SECRET) == budget_key(SCOPE, SECRET)


def test_r2_anonymous_requests_of_one_tenant_share_a_budget() -> None:
    anonymous = replace(SCOPE, caller=None)
    assert budget_key(anonymous, SECRET) == budget_key(replace(anonymous), SECRET)
    assert budget_key(anonymous, SECRET) != budget_key(replace(anonymous, tenant="bob"), SECRET)


@pytest.mark.parametrize("caller", ["anonymous", "caller:", "None", ""])
def test_r2_nobody_can_call_himself_anonymous(caller: str) -> None:
    assert budget_key(replace(SCOPE, caller=caller), SECRET) != budget_key(replace(SCOPE, caller=None), SECRET)


@given(scopes, scopes)
def test_r1_two_scopes_have_one_key_only_when_they_are_one(one: Scope, other: Scope) -> None:
    assert (budget_key(one, SECRET) == budget_key(other, SECRET)) is (one == other)


@given(texts, st.integers(0, 12), st.integers(0, 12), st.integers(0, 12), st.integers(0, 12))
def test_r1_no_cut_through_the_same_text_collides(text: str, one: int, two: int, three: int, four: int) -> None:
    """The same letters, cut at other places, are other parts."""
    first, second = sorted((one, two)), sorted((three, four))
    scope, other = (
        Scope(Mode.CHAT, text[: cut[0]], text[cut[0] : cut[1]], text[cut[1] :], None) for cut in (first, second)
    )
    assert (budget_key(scope, SECRET) == budget_key(other, SECRET)) is (scope == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (replace(SCOPE, tenant="ab", binding="c"), replace(SCOPE, tenant="a", binding="bc")),
        (replace(SCOPE, tenant="a\0b", binding="c"), replace(SCOPE, tenant="a", binding="b\0c")),
        (replace(SCOPE, binding="", model="x"), replace(SCOPE, binding="x", model="")),
        (replace(SCOPE, model="m/caller:", caller="x"), replace(SCOPE, model="m/", caller="caller:x")),
        (
            replace(SCOPE, tenant="\x00\x00\x00\x01a", binding=""),
            replace(SCOPE, tenant="", binding="\x00\x00\x00\x01a"),
        ),
    ],
    ids=str,
)
def test_r1_parts_do_not_run_into_each_other(one: Scope, other: Scope) -> None:
    assert budget_key(one, SECRET) != budget_key(other, SECRET)


def test_r1_another_secret_gives_another_key() -> None:
    assert budget_key(SCOPE, SECRET) != budget_key(SCOPE, bytes(SECRET_BYTES))


@given(scopes)
def test_r1_the_key_shows_nothing(scope: Scope) -> None:
    key = budget_key(scope, SECRET)
    assert len(key) == 2 * KEY_BYTES
    assert set(key) <= set("0123456789abcdef")


def test_r1_the_key_is_no_plain_hash_that_could_be_guessed() -> None:
    """Who knows a caller's name, but not the secret, cannot find the caller's line in a log."""
    parts = (SCOPE.mode.value, SCOPE.tenant, SCOPE.binding, SCOPE.model, f"caller:{SCOPE.caller}")
    plain = blake3(b"".join(len(part).to_bytes(8, "big") + part.encode() for part in parts))
    assert plain.hexdigest(length=KEY_BYTES) != budget_key(SCOPE, SECRET)


def test_r1_text_that_is_no_unicode_has_a_key_too() -> None:
    assert budget_key(replace(SCOPE, caller="\ud800"), SECRET) != budget_key(replace(SCOPE, caller="\ud801"), SECRET)


def test_r4_there_are_three_modes() -> None:
    assert [mode.value for mode in Mode] == ["chat", "compaction", "auxiliary"]
