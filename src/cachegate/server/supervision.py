"""What a supervisor does about what happens: a state and an event in, a state and actions out. No I/O, no clock.

One generation of workers serves. An upgrade checks what is installed and configured now, starts the next generation,
and lets the old one leave only when every new worker is ready; what goes wrong before that leaves the old one serving.
"""

from dataclasses import replace

from cachegate.server.supervision_values import (
    Action,
    Answer,
    Check,
    Checked,
    Count,
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
    Upgrade,
    UpgradeAsked,
    Wait,
    Worker,
)

START_MS = 60_000
"""A worker is ready in half a second; a machine under load gets this long."""
CHECK_MS = 60_000
"""As long as a start: the check imports the same code."""
CUT_MS = 90_000
"""From the end of the drain to the kill: a worker waits `sendStallSeconds` (60) for callers who read nothing."""
COUNT_MS = 2_000
"""A worker that does not say how much it runs within this time is counted without."""
STEADY_MS = 10_000
"""A worker that lived for less died at once: something is wrong with all of them, and haste does not help."""
PAUSE_MS, PAUSE_MS_MAX = 500, 30_000
"""Pause before the third start in a row of workers that die at once; it doubles up to the second figure."""
QUEUED_MAX = 16
"""Askers that wait for an upgrade; each holds a connection."""

Step = tuple[State, tuple[Action, ...]]


def step(state: State, event: Event, now_ms: int) -> Step:
    """Return the state after an event, and what is to be done now."""
    state, actions = _happen(state, event, now_ms)
    for rule in (_overdue, _counted_all, _next_upgrade, _fill_up, _end):
        state, more = rule(state, now_ms)
        actions = (*actions, *more)
    return state, actions


def next_deadline_ms(state: State) -> int | None:
    """Return when `Ticked` has to come at the latest; None when nothing is waited for."""
    waited = [worker.deadline_ms for worker in state.workers]
    if state.upgrade is not None:
        waited.append(state.upgrade.check_until_ms)
    if state.count is not None:
        waited.append(state.count.until_ms)
    if not state.stopping and _short(state):
        waited.append(state.start_at_ms)
    return min((at for at in waited if at is not None), default=None)


def waiting(running: int) -> str:
    """Return what whoever pressed Ctrl-C is told."""
    return f"Waiting for {running} running request{'s' if running > 1 else ''}; press Ctrl-C again to end them now."


def _happen(state: State, event: Event, now_ms: int) -> Step:
    happened: Step = (state, ())
    match event:
        case Ready():
            happened = _ready(state, event, now_ms)
        case Gone():
            happened = _gone(state, event, now_ms)
        case Counted():
            happened = _counted(state, event)
        case Checked():
            happened = _checked(state, event, now_ms)
        case UpgradeAsked():
            happened = _upgrade_asked(state, event.asker)
        case StatusAsked():
            happened = _status_asked(state, event.asker, now_ms)
        case StopAsked():
            happened = _cut(state, now_ms) if state.stopping else _stop(state, now_ms)
        case Ticked():
            pass
    return happened


def _ready(state: State, event: Ready, now_ms: int) -> Step:
    """Note a worker that serves; the last one of a generation completes the start or the upgrade."""
    worker = _find(state, event.worker)
    if worker is None or worker.phase is not Phase.STARTING:
        return state, ()
    serving = replace(
        worker,
        phase=Phase.SERVING,
        since_ms=now_ms,
        deadline_ms=None,
        drain_ms=event.drain_ms,
        version=event.version,
    )
    state = _put(state, serving)
    upgrade = state.upgrade
    if upgrade is not None and worker.generation == upgrade.generation:
        return _upgraded(state, upgrade, event.version, now_ms) if _complete(state, upgrade.generation) else (state, ())
    if not state.ready and _complete(state, state.generation):
        return replace(state, ready=True), (Greet(), Notify("READY"))
    return state, ()


def _upgraded(state: State, upgrade: Upgrade, version: str, now_ms: int) -> Step:
    """Let the old generation leave: the new one is complete."""
    state = replace(state, generation=upgrade.generation, upgrade=None, died_at_once=0)
    actions: list[Action] = []
    for worker in state.workers:
        if worker.generation != upgrade.generation and worker.phase is not Phase.LEAVING:
            state, more = _leave(state, worker, Order.RETIRE, now_ms)
            actions.extend(more)
    many = "1 new worker" if state.wanted == 1 else f"{state.wanted} new workers"
    words = f"Upgraded: {many} of version {version} (generation {upgrade.generation}). Old streams run on to their end."
    return state, (*actions, *_answers(upgrade.askers, words, done=True), Log(words), Notify("READY"))


def _gone(state: State, event: Gone, now_ms: int) -> Step:
    """Forget a worker; an unexpected end fails the start or the upgrade, or is made good by `_fill_up`."""
    worker = _find(state, event.worker)
    if worker is None:
        return state, ()
    state = _no_longer_missing(state, worker.id)
    state = replace(state, workers=tuple(other for other in state.workers if other.id != worker.id))
    if worker.phase is Phase.LEAVING:
        return state, ()
    if state.upgrade is not None and worker.generation == state.upgrade.generation:
        return _abandon(state, f"A new worker {event.words}.", now_ms)
    if not state.ready:
        state, actions = _cut(replace(state, stopping=True, exit_code=1), now_ms)
        return state, (*actions, Log(f"The gateway did not start: a worker {event.words}.", warning=True))
    steady = worker.phase is Phase.SERVING and now_ms - worker.since_ms >= STEADY_MS
    died = 0 if steady else state.died_at_once
    pause_ms = 0 if died == 0 else min(PAUSE_MS << (died - 1), PAUSE_MS_MAX)
    words = f"A worker {event.words}; another one is started in its place"
    words += f" in {pause_ms / 1000:g} s." if pause_ms else "."
    return replace(state, died_at_once=died + 1, start_at_ms=now_ms + pause_ms), (Log(words, warning=True),)


def _counted(state: State, event: Counted) -> Step:
    worker = _find(state, event.worker)
    if worker is not None:
        state = _put(state, replace(worker, running=event.running))
    return _no_longer_missing(state, event.worker), ()


def _upgrade_asked(state: State, asker: int) -> Step:
    """Queue the wish: `_next_upgrade` begins it as soon as none runs, so that what changed meanwhile is taken over."""
    refused = ""
    if state.stopping:
        refused = "The gateway is being stopped; nothing was upgraded."
    elif not state.ready:
        refused = "The gateway is still starting; ask again when it serves."
    elif len(state.queued) >= QUEUED_MAX:
        refused = f"{QUEUED_MAX} upgrades are asked for already; ask again when they are done."
    if refused:
        return state, (*_answers((asker,), refused, done=False), Log(refused, warning=True))
    return replace(state, queued=(*state.queued, asker)), ()


def _next_upgrade(state: State, now_ms: int) -> Step:
    """Begin an upgrade for everybody who waits for one."""
    if not state.queued or state.upgrade is not None or state.stopping:
        return state, ()
    generation = state.last_generation + 1
    upgrade = Upgrade(generation, state.queued, now_ms + CHECK_MS)
    state = replace(state, last_generation=generation, upgrade=upgrade, queued=())
    return state, (Check(), Notify("RELOADING"))


def _checked(state: State, event: Checked, now_ms: int) -> Step:
    upgrade = state.upgrade
    if upgrade is None or upgrade.check_until_ms is None:
        return state, ()
    state = replace(state, upgrade=replace(upgrade, check_until_ms=None))
    if event.problem:
        return _abandon(state, event.problem, now_ms)
    return _start(state, state.wanted, upgrade.generation, now_ms)


def _abandon(state: State, problem: str, now_ms: int) -> Step:
    """Give an upgrade up: its workers go, the old ones serve on."""
    upgrade = state.upgrade
    if upgrade is None:
        return state, ()
    state = replace(state, upgrade=None)
    actions: list[Action] = [EndCheck()] if upgrade.check_until_ms is not None else []
    for worker in state.workers:
        if worker.generation == upgrade.generation and worker.phase is not Phase.LEAVING:
            state, more = _leave(state, worker, Order.RETIRE, now_ms)
            actions.extend(more)
    words = f"Nothing was upgraded, and the old workers serve on. {problem}"
    answers = _answers(upgrade.askers, words, done=False)
    return state, (*actions, *answers, Log(words, warning=True), Notify("READY"))


def _status_asked(state: State, asker: int, now_ms: int) -> Step:
    asked = frozenset(worker.id for worker in state.workers if worker.phase is not Phase.STARTING)
    before = state.count
    count = Count(asked, now_ms + COUNT_MS, (*(before.askers if before else ()), asker))
    return replace(state, count=count), tuple(Tell(worker, Order.COUNT) for worker in sorted(asked))


def _stop(state: State, now_ms: int) -> Step:
    """Let everything end: what runs may run on, nothing new begins. A worker answers the order with its count."""
    state, actions = _abandon(replace(state, stopping=True), "The gateway is being stopped.", now_ms)
    refused = _answers(state.queued, "The gateway is being stopped; nothing was upgraded.", done=False)
    state = replace(state, queued=())
    ordered: list[Action] = []
    for worker in state.workers:
        state, more = _leave(state, worker, Order.DRAIN, now_ms)
        ordered.extend(more)
    told = frozenset(action.worker for action in ordered if isinstance(action, Tell))
    askers = state.count.askers if state.count else ()
    state = replace(state, count=Count(told, now_ms + COUNT_MS, askers))
    return state, (Notify("STOPPING"), *(act for act in actions if not isinstance(act, Notify)), *refused, *ordered)


def _cut(state: State, now_ms: int) -> Step:
    """End what still runs."""
    actions: list[Action] = []
    for worker in state.workers:
        actions.append(Kill(worker.id) if worker.phase is Phase.STARTING else Tell(worker.id, Order.CUT))
        state = _put(state, replace(worker, phase=Phase.LEAVING, deadline_ms=now_ms + CUT_MS))
    return replace(state, cutting=True), tuple(actions)


def _leave(state: State, worker: Worker, order: Order, now_ms: int) -> Step:
    """Send a worker away: with an order when it serves, at once when it was still starting."""
    action: Action = Kill(worker.id) if worker.phase is Phase.STARTING else Tell(worker.id, order)
    leaving = replace(
        worker, phase=Phase.LEAVING, since_ms=now_ms, deadline_ms=now_ms + worker.drain_ms + CUT_MS, running=None
    )
    return _put(state, leaving), (action,)


def _overdue(state: State, now_ms: int) -> Step:
    """Kill what took too long; its end comes as `Gone`."""
    actions: list[Action] = []
    upgrade = state.upgrade
    if upgrade is not None and upgrade.check_until_ms is not None and upgrade.check_until_ms <= now_ms:
        state, more = _abandon(state, f"The check did not end within {CHECK_MS // 1000} seconds.", now_ms)
        actions.extend(more)
    for worker in state.workers:
        if worker.deadline_ms is None or worker.deadline_ms > now_ms:
            continue
        if state.upgrade is not None and worker.generation == state.upgrade.generation:
            problem = f"A new worker was not ready within {START_MS // 1000} seconds."
            state, more = _abandon(state, problem, now_ms)
            return state, (*actions, *more)
        words = f"A worker was still {worker.phase} after its time and is killed."
        actions += [Kill(worker.id), Log(words, warning=True)]
        state = _put(state, replace(worker, deadline_ms=None))
    return state, tuple(actions)


def _counted_all(state: State, now_ms: int) -> Step:
    """Answer those who asked how much runs, when all workers have said it or will not."""
    count = state.count
    if count is None or (count.missing and now_ms < count.until_ms):
        return state, ()
    actions: list[Action] = [Report(asker) for asker in count.askers]
    running = sum(worker.running or 0 for worker in state.workers)
    if state.stopping and running:
        actions.append(Wait(running))
    return replace(state, count=None), tuple(actions)


def _fill_up(state: State, now_ms: int) -> Step:
    """Start what is missing of the generation that serves; while an upgrade starts workers, those come anyway."""
    missing = 0 if state.stopping or now_ms < state.start_at_ms else _short(state)
    return _start(state, missing, state.generation, now_ms)


def _end(state: State, now_ms: int) -> Step:
    del now_ms
    return state, (Exit(state.exit_code),) if state.stopping and not state.workers else ()


def _short(state: State) -> int:
    """Return how many workers the serving generation lacks."""
    if state.upgrade is not None and state.upgrade.check_until_ms is None:
        return 0
    alive = [
        worker
        for worker in state.workers
        if worker.generation == state.generation and worker.phase is not Phase.LEAVING
    ]
    return max(0, state.wanted - len(alive))


def _start(state: State, many: int, generation: int, now_ms: int) -> Step:
    ids = range(state.last_id + 1, state.last_id + 1 + many)
    new = tuple(Worker(number, generation, Phase.STARTING, now_ms, now_ms + START_MS) for number in ids)
    state = replace(state, last_id=state.last_id + many, workers=(*state.workers, *new))
    return state, tuple(Start(number, generation) for number in ids)


def _complete(state: State, generation: int) -> bool:
    serving = [w for w in state.workers if w.generation == generation and w.phase is Phase.SERVING]
    return len(serving) >= state.wanted


def _find(state: State, worker_id: int) -> Worker | None:
    return next((worker for worker in state.workers if worker.id == worker_id), None)


def _put(state: State, new: Worker) -> State:
    return replace(state, workers=tuple(new if worker.id == new.id else worker for worker in state.workers))


def _no_longer_missing(state: State, worker_id: int) -> State:
    if state.count is None:
        return state
    return replace(state, count=replace(state.count, missing=state.count.missing - {worker_id}))


def _answers(askers: tuple[int, ...], words: str, *, done: bool) -> tuple[Answer, ...]:
    return tuple(Answer(asker, done, words) for asker in askers if asker)
