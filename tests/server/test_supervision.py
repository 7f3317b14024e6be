"""The supervisor's decisions, as values: who is started, told, killed and answered, and when."""

from dataclasses import dataclass, field

import pytest

from cachegate.server.supervision import (
    CHECK_MS,
    COUNT_MS,
    CUT_MS,
    PAUSE_MS,
    PAUSE_MS_MAX,
    QUEUED_MAX,
    START_MS,
    STEADY_MS,
    next_deadline_ms,
    step,
    waiting,
)
from cachegate.server.supervision_values import (
    Action,
    Answer,
    Check,
    Checked,
    Counted,
    EndCheck,
    Event,
    Exit,
    Gone,
    Greet,
    Kill,
    Log,
    Notify,
    Order,
    Phase,
    Ready,
    Report,
    Start,
    State,
    StatusAsked,
    StopAsked,
    Tell,
    Ticked,
    UpgradeAsked,
    Wait,
)

DRAIN_MS = 900_000


@dataclass(slots=True)
class Play:
    """A supervisor whose time and happenings the test writes."""

    state: State
    now_ms: int = 0
    log: list[str] = field(default_factory=list)

    def happen(self, *events: Event, after_ms: int = 0) -> list[Action]:
        """Let time pass, then let things happen; returns what is to be done, without what is only said."""
        self.now_ms += after_ms
        done: list[Action] = []
        for event in events:
            self.state, actions = step(self.state, event, self.now_ms)
            self.log += [action.words for action in actions if isinstance(action, Log)]
            done += [action for action in actions if not isinstance(action, Log | Notify)]
        return done

    def ready(self, *workers: int) -> list[Action]:
        return self.happen(*(Ready(worker, "1.0", DRAIN_MS) for worker in workers))

    @property
    def phases(self) -> dict[int, str]:
        return {worker.id: worker.phase.value for worker in self.state.workers}


def started(workers: int = 1) -> Play:
    """A supervisor whose first generation serves."""
    play = Play(State(wanted=workers, started_ms=0))
    play.happen(Ticked())
    play.ready(*range(1, workers + 1))
    return play


def upgrading(workers: int = 1, asker: int = 7) -> Play:
    """One that starts the second generation for somebody."""
    play = started(workers)
    assert play.happen(UpgradeAsked(asker)) == [Check()]
    assert play.happen(Checked()) == [Start(workers + number, 2) for number in range(1, workers + 1)]
    return play


def test_it_starts_what_is_wanted_and_greets_once_all_are_ready() -> None:
    play = Play(State(wanted=2, started_ms=0))
    assert play.happen(Ticked()) == [Start(1, 1), Start(2, 1)]
    assert play.happen(Ticked()) == []
    assert play.ready(1) == []
    assert play.ready(2) == [Greet()]
    assert play.ready(2) == [], "said twice, heard once"


@pytest.mark.parametrize("late", [True, False])
def test_a_start_that_fails_ends_with_words_and_a_code(late: bool) -> None:
    play = Play(State(wanted=2, started_ms=0))
    play.happen(Ticked())
    play.ready(1)
    if late:
        assert play.happen(Ticked(), after_ms=START_MS) == [Kill(2)]
    assert play.happen(Gone(2, "ended with exit code 3")) == [Tell(1, Order.CUT)]
    assert play.log[-1] == "The gateway did not start: a worker ended with exit code 3."
    assert play.happen(Gone(1, "ended")) == [Exit(1)]


def test_an_upgrade_lets_the_old_ones_leave_only_when_every_new_one_is_ready() -> None:
    play = upgrading(2)
    assert play.ready(3) == []
    assert play.phases == {1: "serving", 2: "serving", 3: "serving", 4: "starting"}
    told, also, answer = play.ready(4)
    assert [told, also] == [Tell(1, Order.RETIRE), Tell(2, Order.RETIRE)]
    assert isinstance(answer, Answer)
    assert (answer.asker, answer.done) == (7, True)
    assert answer.words.startswith("Upgraded: 2 new workers of version 1.0 (generation 2).")
    assert play.happen(Gone(1, "ended"), Gone(2, "ended")) == [], "who leaves is not replaced"
    assert play.state.generation == 2


def test_a_failed_check_starts_nothing() -> None:
    play = started()
    play.happen(UpgradeAsked(7))
    assert play.happen(Checked("c.yaml: listn: there is no such key.")) == [
        Answer(
            7,
            done=False,
            words="Nothing was upgraded, and the old workers serve on. c.yaml: listn: there is no such key.",
        )
    ]
    assert play.phases == {1: "serving"}


def test_a_check_that_hangs_is_ended() -> None:
    play = started()
    play.happen(UpgradeAsked(7))
    assert next_deadline_ms(play.state) == CHECK_MS
    ended, answer = play.happen(Ticked(), after_ms=CHECK_MS)
    assert ended == EndCheck()
    assert isinstance(answer, Answer)
    assert answer.words.endswith("The check did not end within 60 seconds.")
    assert play.happen(Checked()) == [], "its end comes too late to mean anything"


def test_a_new_worker_that_dies_leaves_the_old_ones_serving() -> None:
    play = upgrading(2)
    play.ready(3)
    retired, killed, *_ = play.happen(Gone(4, "was ended by SIGKILL"))
    assert (retired, killed) == (Tell(3, Order.RETIRE), Answer(7, done=False, words=play.log[-1]))
    assert play.log[-1] == "Nothing was upgraded, and the old workers serve on. A new worker was ended by SIGKILL."
    assert play.phases == {1: "serving", 2: "serving", 3: "leaving"}


def test_a_new_worker_that_is_not_ready_in_time_is_killed() -> None:
    play = upgrading()
    assert next_deadline_ms(play.state) == START_MS
    killed, answer = play.happen(Ticked(), after_ms=START_MS)
    assert killed == Kill(2)
    assert isinstance(answer, Answer)
    assert answer.words.endswith("A new worker was not ready within 60 seconds.")
    assert play.happen(Gone(2, "was ended by SIGKILL")) == []
    assert play.phases == {1: "serving"}


def test_a_second_upgrade_waits_for_the_first_and_takes_over_what_changed_meanwhile() -> None:
    play = upgrading()
    assert play.happen(UpgradeAsked(8), UpgradeAsked()) == []
    *_, answer, check = play.ready(2)
    assert isinstance(answer, Answer)
    assert (answer.asker, check) == (7, Check())
    play.happen(Checked())
    *_, answer = play.ready(3)
    assert isinstance(answer, Answer)
    assert (answer.asker, play.state.generation) == (8, 3), "a signal waits for no answer"


def test_upgrades_cannot_pile_up_without_end() -> None:
    play = upgrading()
    play.happen(*(UpgradeAsked(number) for number in range(10, 10 + QUEUED_MAX)))
    (answer,) = play.happen(UpgradeAsked(99))
    assert isinstance(answer, Answer)
    assert (answer.asker, answer.done) == (99, False)


def test_a_failed_upgrade_can_be_asked_for_again() -> None:
    play = upgrading()
    play.happen(Gone(2, "ended"))
    assert play.happen(UpgradeAsked(8)) == [Check()]
    assert play.happen(Checked()) == [Start(3, 3)], "the number of the failed one is used up"


def test_a_worker_that_dies_is_replaced_at_once() -> None:
    play = started(2)
    assert play.happen(Gone(1, "was ended by SIGKILL"), after_ms=STEADY_MS) == [Start(3, 1)]
    assert play.log == ["A worker was ended by SIGKILL; another one is started in its place."]


def test_workers_that_die_at_once_are_replaced_ever_more_slowly() -> None:
    play = started()
    assert play.happen(Gone(1, "ended")) == [Start(2, 1)]
    pauses: list[int] = []
    for worker in range(2, 11):
        assert play.happen(Gone(worker, "ended")) == []
        until_ms = next_deadline_ms(play.state)
        assert until_ms is not None
        pauses.append(until_ms - play.now_ms)
        assert play.happen(Ticked(), after_ms=pauses[-1] - 1) == []
        assert play.happen(Ticked(), after_ms=1) == [Start(worker + 1, 1)]
    assert pauses[:3] == [PAUSE_MS, 2 * PAUSE_MS, 4 * PAUSE_MS]
    assert pauses[-1] == PAUSE_MS_MAX
    play.ready(11)
    assert play.happen(Gone(11, "ended"), after_ms=STEADY_MS) == [Start(12, 1)], "one that lived forgives the others"


def test_a_worker_that_dies_during_the_check_is_replaced_and_the_upgrade_goes_on() -> None:
    play = started()
    play.happen(UpgradeAsked(7))
    assert play.happen(Gone(1, "ended")) == [Start(2, 1)]
    assert play.happen(Checked()) == [Start(3, 2)]
    killed, answer = play.ready(3)
    assert killed == Kill(2), "what was still starting is not needed any more"
    assert isinstance(answer, Answer)
    assert answer.done


def test_a_worker_that_does_not_leave_is_killed_after_its_own_drain() -> None:
    play = upgrading()
    play.ready(2)
    assert next_deadline_ms(play.state) == DRAIN_MS + CUT_MS
    assert play.happen(Ticked(), after_ms=DRAIN_MS + CUT_MS - 1) == []
    assert play.happen(Ticked(), after_ms=1) == [Kill(1)]
    assert play.happen(Ticked()) == [], "killed once"


def test_the_first_stop_drains_and_the_second_cuts() -> None:
    play = started(2)
    assert play.happen(StopAsked()) == [Tell(1, Order.DRAIN), Tell(2, Order.DRAIN)]
    assert play.happen(Counted(1, 2)) == []
    assert play.happen(Counted(2, 1)) == [Wait(3)]
    assert play.happen(StopAsked()) == [Tell(1, Order.CUT), Tell(2, Order.CUT)]
    assert play.happen(Gone(1, "ended")) == []
    assert play.happen(Gone(2, "ended")) == [Exit(0)]


def test_a_stop_of_an_idle_gateway_says_nothing() -> None:
    play = started()
    play.happen(StopAsked())
    assert play.happen(Counted(1, 0), Gone(1, "ended")) == [Exit(0)]


def test_a_stop_says_what_it_knows_when_a_worker_keeps_silent() -> None:
    play = started(2)
    play.happen(StopAsked(), Counted(1, 1))
    assert play.happen(Ticked(), after_ms=COUNT_MS) == [Wait(1)]


def test_a_stop_ends_an_upgrade_and_refuses_the_next() -> None:
    play = upgrading()
    play.happen(UpgradeAsked(8))
    done = play.happen(StopAsked())
    assert Kill(2) in done
    assert Tell(1, Order.DRAIN) in done
    assert [(answer.asker, answer.done) for answer in done if isinstance(answer, Answer)] == [(7, False), (8, False)]
    (refused,) = play.happen(UpgradeAsked(9))
    assert isinstance(refused, Answer)
    assert refused.words == "The gateway is being stopped; nothing was upgraded."


def test_a_stop_reaches_those_that_are_leaving_too() -> None:
    play = upgrading()
    play.ready(2)
    assert play.happen(StopAsked()) == [Tell(1, Order.DRAIN), Tell(2, Order.DRAIN)]


def test_an_upgrade_before_the_start_is_over_is_refused() -> None:
    play = Play(State(wanted=1, started_ms=0))
    play.happen(Ticked())
    (refused,) = play.happen(UpgradeAsked(7))
    assert isinstance(refused, Answer)
    assert "still starting" in refused.words


def test_a_status_waits_until_all_have_counted_and_no_longer() -> None:
    play = started(2)
    assert play.happen(StatusAsked(4)) == [Tell(1, Order.COUNT), Tell(2, Order.COUNT)]
    assert play.happen(Counted(1, 3)) == []
    assert play.happen(Gone(2, "ended")) == [Report(4), Start(3, 1)], "who is gone counts no more"
    play.happen(StatusAsked(5), StatusAsked(6))
    assert play.happen(Ticked(), after_ms=COUNT_MS) == [Report(5), Report(6)]
    assert [worker.running for worker in play.state.workers if worker.phase is Phase.SERVING] == [3]


def test_the_service_manager_is_told() -> None:
    state = State(wanted=1, started_ms=0)
    words: list[str] = []
    events = (Ticked(), Ready(1, "1", 0), UpgradeAsked(), Checked("no"), StopAsked())
    for event in events:
        state, actions = step(state, event, 0)
        words += [action.word for action in actions if isinstance(action, Notify)]
    assert words == ["READY", "RELOADING", "READY", "STOPPING"]


def test_what_comes_too_late_or_of_nobody_changes_nothing() -> None:
    play = started()
    before = play.state
    assert play.happen(Ready(9, "1", 0), Gone(9, "ended"), Counted(9, 1), Checked("late")) == []
    assert play.state == before
    assert next_deadline_ms(play.state) is None, "at rest it sleeps"


def test_the_words_for_whoever_pressed_ctrl_c() -> None:
    assert waiting(1) == "Waiting for 1 running request; press Ctrl-C again to end them now."
    assert waiting(2).startswith("Waiting for 2 running requests;")
