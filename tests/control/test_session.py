"""Sessions under frames of every kind: one answer for each request, no thread of somebody else's, and no crash."""

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cachegate.control.session import METHODS
from control.hosting import Hosting, Visitor, hosting
from control.test_rpc import json_values

SAID = [{"type": "text", "text": "hi"}]


async def test_methods_are_answered_behind_nothing_and_in_front_of_their_events() -> None:
    async with hosting() as stage:
        visitor = await stage.visitor()
        started = await visitor.ask("thread/start", model="synthetic/cache", name="mine")
        thread = started["result"]["thread"]
        assert (thread["name"], thread["protocol"], thread["status"]) == ("mine", "responses", "idle")
        kinds = [frame.get("method", "answer") for frame in visitor.frames]
        assert kinds == ["answer", "answer", "thread/started"]


async def test_what_a_fault_of_ours_leaves_is_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with hosting() as stage:
        visitor = await stage.visitor()
        monkeypatch.setattr(stage.host, "page", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await visitor.ask("thread/list")
        assert visitor.frames[-1]["error"]["code"] == -32603


methods = st.sampled_from((*METHODS, "initialized", "thread/begin", "item/tool/call"))
frames = st.one_of(
    json_values,
    st.fixed_dictionaries(
        {},
        optional={
            "id": st.integers(1, 5) | json_values,
            "method": methods | json_values,
            "params": json_values,
            "jsonrpc": st.sampled_from(("2.0", "1.0", 2)),
            "type": st.just("response.create") | json_values,
            "result": json_values,
        },
    ),
)


@settings(max_examples=60)
@given(st.lists(frames.map(json.dumps) | st.text(max_size=20), max_size=20))
def test_any_frames_are_survived_and_every_request_is_answered_once(sent: list[str]) -> None:
    async def play() -> None:
        async with hosting() as stage:
            visitor = await stage.visitor()
            begin = len(visitor.frames)
            for frame in sent:
                before = len([each for each in visitor.frames if "method" not in each])
                await visitor.frame(frame)
                answers = [each for each in visitor.frames if "method" not in each][before:]
                assert [each["id"] for each in answers] == _expected(frame)
            visitor.asked = 1_000_000
            await visitor.ask("thread/list")
            assert len(visitor.frames) > begin
            await stage.life.settled()

    asyncio.run(play())


def _expected(text: str) -> list[Any]:
    """Return the ids of the answers that a frame must get: an oracle that knows JSON-RPC and nothing of ours."""
    try:
        frame = json.loads(text)
    except ValueError:
        return [None]
    if not isinstance(frame, dict):
        return [None]
    request_id = frame.get("id")
    good = isinstance(request_id, str | int) and not isinstance(request_id, bool)
    kind = frame.get("type")
    inference = (isinstance(kind, str) and kind.startswith("response.")) or ("type" in frame and "method" not in frame)
    if frame.get("jsonrpc", "2.0") == "2.0" and not inference:
        if isinstance(frame.get("method"), str) and "id" not in frame:
            return []
        if "method" not in frame and good and ("result" in frame) != ("error" in frame):
            return []
    return [request_id if good else None]


VALID: dict[str, dict[str, Any]] = {
    "thread/start": {"model": "synthetic/cache", "dynamicTools": [{"name": "a", "inputSchema": {}}], "effort": "low"},
    "thread/resume": {"cursor": "log_x.1", "dynamicTools": []},
    "thread/list": {"limit": 3},
    "thread/read": {},
    "turn/start": {"input": [{"type": "text", "text": "hi"}, {"type": "image", "url": "https://x.test"}]},
    "turn/steer": {"input": SAID, "expectedTurnId": "turn_x"},
    "turn/interrupt": {"turnId": "turn_x"},
    "thread/compact/start": {},
}


@st.composite
def almost_valid(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Draw a request that is right but for one field: another value, one too many, or one inside a list."""
    method = draw(st.sampled_from(list(VALID)))
    params = json.loads(json.dumps(VALID[method]))
    if method not in {"thread/start", "thread/list"}:
        params["threadId"] = "THREAD"
    lists = [value for value in params.values() if isinstance(value, list)]
    inner: list[dict[str, Any]] = [each for value in lists for each in value if isinstance(each, dict)]
    target: dict[str, Any] = draw(st.sampled_from([params, *inner]))
    target[draw(st.sampled_from([*target, "more"]))] = draw(json_values)
    return method, params


@settings(max_examples=60)
@given(st.lists(almost_valid(), max_size=12))
def test_a_request_that_is_almost_right_is_answered_in_its_own_words(asked: list[tuple[str, dict[str, Any]]]) -> None:
    async def play() -> None:
        async with hosting() as stage:
            visitor = await stage.visitor()
            thread_id = (await visitor.ask("thread/start", model="synthetic/cache"))["result"]["thread"]["id"]
            for method, params in asked:
                named = {**params, "threadId": thread_id} if params.get("threadId") == "THREAD" else params
                answer = await visitor.ask(method, **named)
                code = answer.get("error", {}).get("code")
                assert code in {None, -32602, -32000, -32001}
                if "more" in named:
                    assert code == -32602
                await asyncio.sleep(0)
            await stage.life.settled()

    asyncio.run(play())


class TwoTenants(RuleBasedStateMachine):
    """Two tenants with two clients each do whatever they like with each other's threads.

    What is expected is kept apart from the host: whose a thread is, and who listens to it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.context = hosting()
        self.stage: Hosting = self.run(self.context.__aenter__())
        self.visitors: list[Visitor] = [self.run(self.stage.visitor(tenant)) for tenant in ("a", "a", "b", "b")]
        self.owner: dict[str, str] = {}
        self.turns: dict[str, str] = {}
        self.listens: dict[int, set[str]] = {number: set() for number in range(4)}
        self.ever: dict[int, set[str]] = {number: set() for number in range(4)}

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def thread(self, number: int) -> str:
        known = list(self.owner)
        return known[number % len(known)] if known else "thread_none"

    def ask(self, who: int, method: str, **params: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.run(self.visitors[who].ask(method, **params))
        found = self.owner.get(params.get("threadId", ""))
        if "threadId" in params and found != self.visitors[who].tenant:
            assert answer["error"]["code"] == -32001
        return answer

    clients = st.integers(0, 3)
    numbers = st.integers(0, 5)

    @rule(who=clients, model=st.sampled_from(("cache", "hang", "error")))
    def start(self, who: int, model: str) -> None:
        thread = self.ask(who, "thread/start", model=f"synthetic/{model}")["result"]["thread"]
        self.owner[thread["id"]] = self.visitors[who].tenant
        self.listens[who].add(thread["id"])
        self.ever[who].add(thread["id"])

    @rule(who=clients, number=numbers, place=st.none() | st.integers(0, 30))
    def resume(self, who: int, number: int, place: int | None) -> None:
        thread_id = self.thread(number)
        cursors = [
            frame["params"]["cursor"]
            for visitor in self.visitors
            for frame in visitor.frames
            if frame.get("params", {}).get("threadId") == thread_id and "cursor" in frame["params"]
        ]
        cursor = cursors[place % len(cursors)] if place is not None and cursors else None
        answer = self.ask(who, "thread/resume", threadId=thread_id, cursor=cursor)
        if "result" in answer:
            self.listens[who].add(thread_id)
            self.ever[who].add(thread_id)
            assert answer["result"]["missed"] in {"none", "replayed"}, "nothing was lost yet"

    @rule(who=clients, number=numbers)
    def say(self, who: int, number: int) -> None:
        thread_id = self.thread(number)
        answer = self.ask(who, "turn/start", threadId=thread_id, input=SAID)
        if "result" in answer:
            self.turns[thread_id] = answer["result"]["turn"]["id"]
        elif self.owner.get(thread_id) == self.visitors[who].tenant:
            assert answer["error"]["code"] == -32000

    @rule(who=clients, number=numbers, method=st.sampled_from(("turn/interrupt", "turn/steer")))
    def touch(self, who: int, number: int, method: str) -> None:
        thread_id = self.thread(number)
        turn_id = self.turns.get(thread_id, "turn_none")
        more = {"turnId": turn_id} if method == "turn/interrupt" else {"expectedTurnId": turn_id, "input": SAID}
        answer = self.ask(who, method, threadId=thread_id, **more)
        assert answer.get("error", {}).get("code") in {None, -32000, -32001, -32003}

    @rule(who=clients, number=numbers, method=st.sampled_from(("thread/compact/start", "thread/read")))
    def other(self, who: int, number: int, method: str) -> None:
        self.ask(who, method, threadId=self.thread(number))

    @rule(who=clients, number=numbers)
    def unsubscribe(self, who: int, number: int) -> None:
        if "result" in self.ask(who, "thread/unsubscribe", threadId=self.thread(number)):
            self.listens[who].discard(self.thread(number))

    @rule(who=clients, number=numbers)
    def delete(self, who: int, number: int) -> None:
        thread_id = self.thread(number)
        if "result" in self.ask(who, "thread/delete", threadId=thread_id):
            del self.owner[thread_id]

    @rule(who=clients)
    def listed(self, who: int) -> None:
        data = self.ask(who, "thread/list", limit=100)["result"]["data"]
        mine = {thread for thread, tenant in self.owner.items() if tenant == self.visitors[who].tenant}
        assert {thread["id"] for thread in data} == mine

    @rule(ticks=st.integers(1, 30))
    def time_passes(self, ticks: int) -> None:
        async def tick() -> None:
            for _ in range(ticks):
                await asyncio.sleep(0)

        before = [len(visitor.frames) for visitor in self.visitors]
        self.run(tick())
        for who, visitor in enumerate(self.visitors):
            told = {frame["params"]["threadId"] for frame in visitor.frames[before[who] :]}
            assert told <= self.listens[who], "events come to those who listen"

    @invariant()
    def nobody_is_told_of_a_thread_it_may_not_see(self) -> None:
        for who, visitor in enumerate(self.visitors):
            told = {frame["params"]["threadId"] for frame in visitor.frames if "method" in frame}
            assert told <= self.ever[who]

    @invariant()
    def every_turn_ends_at_most_once_and_events_come_in_order(self) -> None:
        for visitor in self.visitors:
            ended = Counter(
                (frame["params"]["turn"]["id"], frame["params"]["cursor"])
                for frame in visitor.frames
                if frame.get("method") == "turn/completed"
            )
            assert len({turn for turn, _ in ended}) == len(ended)

    def teardown(self) -> None:
        self.run(self.context.__aexit__(None, None, None))
        for visitor in self.visitors:
            answers = [frame["id"] for frame in visitor.frames if "method" not in frame]
            assert sorted(answers) == list(range(1, visitor.asked + 1))
        self.loop.close()


TwoTenants.TestCase.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestTwoTenants = TwoTenants.TestCase
