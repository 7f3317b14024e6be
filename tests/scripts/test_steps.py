"""The steps of the recovery verification: an honest client and gateway pass, and every single lie is found."""

from dataclasses import dataclass, replace

import pytest

from cache_recovery.play import play
from cache_recovery.report import StepReport
from cache_recovery.steps import LARGE_BYTES, Act, Blame, Decided, Heard, steps
from cachegate.guard.fingerprint import UNKNOWN
from cachegate.guard.machine import Decision, Outcome, Reason
from cachegate.guard.notices import stop_words
from cachegate.guard.policy import Policy


def words(blame: Blame) -> str:
    return stop_words(Decision(Outcome.BLOCKED, Reason(blame.value), 2, UNKNOWN), Policy())


@dataclass
class Scripted:
    """A client and its gateway in one: it answers each act by a script, and notes what it was told."""

    script: list[tuple[Heard, tuple[Decided, ...]]]

    def __post_init__(self) -> None:
        self.acts: list[str] = []

    async def say(self, text: str) -> Heard:
        self.acts.append(text)
        return self.script[len(self.acts) - 1][0]

    async def compact(self) -> Heard:
        return await self.say("/compact")

    async def reload(self) -> Heard:
        return await self.say("/reload")

    async def decided(self, *, some: bool) -> tuple[Decided, ...]:
        assert some is (self.acts[-1] != "/reload"), "only a reload may leave no record"
        return self.script[len(self.acts) - 1][1]


def honest(blame: Blame = Blame.MEASURED, *, reloaded: bool = False) -> Scripted:
    cold = "miss" if blame is Blame.MEASURED else "unreported"

    def chat(outcome: str, reason: str, size: int | None) -> tuple[Decided, ...]:
        return (Decided("chat-1", "chat", outcome, reason, size),)

    stopped = (
        Heard(completed=False, words=f"API Error: 400 {words(blame)}", tokens=140_000),
        chat("blocked", blame.value, None),
    )
    reload = [(Heard(completed=True), ())] if reloaded else []
    return Scripted(
        [
            (Heard(completed=True, words="one", tokens=70_000), chat("allowed", cold, 70_000)),
            (Heard(completed=True, words="two", tokens=140_000), chat("allowed", cold, 140_000)),
            *reload,
            stopped,
            stopped,
            (
                Heard(completed=True, words="summary", compactions=1),
                (Decided("chat-2", "compaction", "allowed", cold, 280_000),),
            ),
            (Heard(completed=True, words="on", tokens=900), chat("recovered", "smaller_input", 900)),
        ]
    )


async def seen(played: Scripted, blame: Blame = Blame.MEASURED, *, reloaded: bool = False) -> list[StepReport]:
    told: list[StepReport] = []
    table = steps(reloaded=reloaded)
    assert await play(played, played, table, blame, told.append) is (len(told) == len(table) and told[-1].seen)
    return told


@pytest.mark.parametrize("blame", Blame)
@pytest.mark.parametrize("reloaded", [False, True])
async def test_an_honest_recovery_passes_every_step(blame: Blame, *, reloaded: bool) -> None:
    scripted = honest(blame, reloaded=reloaded)
    told = await seen(scripted, blame, reloaded=reloaded)
    assert [step.problem for step in told] == [""] * len(scripted.script)
    said = [act for act in scripted.acts if act != "/reload"]
    assert all(len(text) >= LARGE_BYTES for text in said[:4])
    assert said[2] == said[3], "the retry is unchanged"
    assert len(set(said[:3])) == 3, "each new text is another"
    assert said[4:] == ["/compact", "Please go on."]


CALL = Decided("chat-1", "chat", "allowed", "miss", 200_000)
COMPACTION = Decided("chat-2", "compaction", "allowed", "miss", 280_000)
FIRST, SECOND, THIRD, RETRY, COMPACT, LAST = range(6)

LIES: list[tuple[int, dict[str, object], tuple[Decided, ...] | None, str]] = [
    # the step, what the client shows otherwise, what the gateway records instead, what is told
    (FIRST, {"completed": False, "words": "no"}, None, "the client failed: no"),
    (FIRST, {}, (), "called for [], and not once for chat"),
    (FIRST, {}, (replace(CALL, reason="reuse"),), "the call was no allowed miss"),
    (FIRST, {"context_full": True}, None, "took its context for full"),
    (SECOND, {}, (CALL, CALL), "called for ['chat', 'chat']"),
    (SECOND, {}, (replace(CALL, key="chat-9"),), "another chat or model"),
    (SECOND, {"compactions": 1}, None, "compacted 1 times, and not 0"),
    (THIRD, {"completed": True, "words": "an answer"}, (CALL,), "the client shows an answer"),
    (THIRD, {}, (CALL,), "the provider was called: chat allowed"),
    (THIRD, {}, (), "did not stop it as measured: it saw no request"),
    (THIRD, {"words": "HTTP 400"}, None, "tells no measured stop: 'HTTP 400'"),
    (THIRD, {"words": words(Blame.UNREPORTED)}, None, "tells no measured stop"),
    (THIRD, {"words": f"{words(Blame.MEASURED)} context_length_exceeded"}, None, "speaks of a full context"),
    (THIRD, {"context_full": True}, None, "took its context for full"),
    (THIRD, {"tokens": 258_400}, None, "jumped from 140,000 to 258,400"),
    (THIRD, {"compactions": 1}, None, "compacted 1 times, and not 0"),
    (RETRY, {}, (COMPACTION,), "the provider was called: compaction allowed"),
    (RETRY, {"compactions": 1}, None, "compacted 1 times, and not 0"),
    (RETRY, {"completed": True}, (CALL,), "the client shows an answer"),
    (COMPACT, {"completed": False, "words": "stopped"}, None, "the client failed: stopped"),
    (COMPACT, {}, (COMPACTION, COMPACTION), "called for ['compaction', 'compaction']"),
    (COMPACT, {}, (CALL,), "called for ['chat'], and not once for compaction"),
    (COMPACT, {"compactions": 0}, None, "compacted 0 times, and not 1"),
    (LAST, {"completed": False, "words": "stopped"}, None, "the client failed: stopped"),
    (LAST, {}, (replace(CALL, key="chat-9", input_tokens=900),), "another chat or model"),
    (LAST, {}, (CALL,), "the input did not shrink: 200000 tokens"),
    (LAST, {}, (COMPACTION,), "called for ['compaction'], and not once for chat"),
    (LAST, {"compactions": 1}, None, "compacted 1 times, and not 0"),
]


@pytest.mark.parametrize(("number", "heard", "decided", "problem"), LIES)
async def test_a_lie_is_told_at_its_step_and_ends_the_table(
    number: int, heard: dict[str, object], decided: tuple[Decided, ...] | None, problem: str
) -> None:
    scripted = honest()
    was = scripted.script[number]
    scripted.script[number] = (replace(was[0], **heard), was[1] if decided is None else decided)  # type: ignore[arg-type]
    told = await seen(scripted)
    assert [step.seen for step in told] == [True] * number + [False]
    assert problem in told[-1].problem


async def test_unreported_usage_that_claims_a_miss_is_a_lie() -> None:
    scripted = honest(Blame.UNREPORTED)
    heard, decided = scripted.script[THIRD]
    scripted.script[THIRD] = (replace(heard, words=words(Blame.MEASURED)), decided)
    told = await seen(scripted, Blame.UNREPORTED)
    assert len(told) == THIRD + 1
    assert "tells no unreported stop" in told[-1].problem


async def test_a_reload_that_fails_or_calls_the_provider_is_told() -> None:
    for lie in ((Heard(completed=False, words="no gateway"), ()), (Heard(completed=True), (CALL,))):
        scripted = honest(reloaded=True)
        scripted.script[2] = lie
        told = await seen(scripted, reloaded=True)
        assert [step.seen for step in told] == [True, True, False]


async def test_a_client_that_breaks_is_a_step_not_seen_and_told_shortly() -> None:
    class Broken(Scripted):
        async def say(self, text: str) -> Heard:
            raise AssertionError(f"the client did not say it in time: {text}")

    told = await seen(Broken(honest().script))
    assert [step.seen for step in told] == [False]
    assert told[0].problem.startswith("AssertionError: the client did not say it in time")
    assert len(told[0].problem) < 600, "a large text is no message"


def test_the_acts_of_the_table_stand_in_the_order_of_the_verification() -> None:
    acts = [step.act for step in steps(reloaded=True)]
    assert acts == [Act.LARGE, Act.LARGE, Act.RELOAD, Act.LARGE, Act.AGAIN, Act.COMPACT, Act.SMALL]
