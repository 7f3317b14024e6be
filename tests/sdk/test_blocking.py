"""The facade for programs without an event loop: everything that the asynchronous one does, from any thread."""

import asyncio
import inspect
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from cachegate.sdk import (
    AsyncChat,
    AsyncClient,
    AsyncHostedChat,
    Chat,
    Client,
    Closed,
    Completed,
    HostedChat,
    Interrupted,
    ProviderError,
    TextDelta,
    Tool,
)
from cachegate.sdk.blocking import LoopThread
from running_gateway import RunningGateway
from scripted_upstream import ScriptedUpstream, Step
from sdk.control_peer import control_peer
from sdk.replies import MODEL, answering, called, hanging, said

T = TypeVar("T")


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "cachegate-sdk"]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert threads() == []


async def beside(work: Callable[[], T]) -> T:
    """Run a program without an event loop beside the gateway's."""
    return await asyncio.to_thread(work)


@pytest.mark.parametrize(
    ("asynchronous", "blocking"), [(AsyncClient, Client), (AsyncChat, Chat), (AsyncHostedChat, HostedChat)]
)
def test_both_have_the_same_methods_with_the_same_parameters(asynchronous: type, blocking: type) -> None:
    internal = {"hear", "lost", "replaced", "run_tool", "attach"}
    for name, method in inspect.getmembers(asynchronous, callable):
        if not name.startswith("_") and name not in internal:
            assert inspect.signature(getattr(blocking, name)).parameters == inspect.signature(method).parameters, name
    constructors = [list(inspect.signature(kind.__init__).parameters) for kind in (AsyncClient, Client)]
    assert constructors[0] == constructors[1]


async def test_a_program_without_a_loop_talks_and_listens(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.answer = answering([called("add", '{"a":1,"b":2}')], [said("3")], [said("Hello.")], [said("Sum.")])

    def program() -> None:
        add = Tool("add", "Adds.", {}, lambda a, b: a + b)
        with Client(gateway.url) as client:
            chat = client.chat(MODEL, tools=[add], id="c")
            assert chat.send("1 + 2?").text == "3"
            events = list(chat.stream("hi"))
            assert events[0] == TextDelta("He")
            assert isinstance(events[-1], Completed)
            assert chat.compact().summary == "Sum."
            assert (chat.id, chat.model, chat.context_full, len(chat.history)) == ("c", MODEL, False, 1)
            assert chat.usage.total.input == 400
            assert repr(chat) == f"<Chat c of {MODEL}>"
            assert repr(client) == f"<Client of {gateway.url}>"

    await beside(program)


async def test_hosted_chats_too() -> None:
    async with control_peer() as peer:

        def program() -> None:
            with Client(peer.url) as client:
                chat = client.hosted_chat("m")
                assert chat.send("hi").text == "Hello."
                assert isinstance(list(chat.stream("hi"))[-1], Completed)
                assert client.threads()[0].model == "m"
                with pytest.raises(ProviderError):
                    chat.steer("left")
                with pytest.raises(ProviderError, match="no summary"):
                    chat.compact()
                assert (chat.model, chat.context_full, chat.interrupt()) == ("m", False, False)
                assert chat.usage.total.input == 100
                assert len(chat.history) == 3
                assert chat.cursor
                assert chat.id in repr(chat)
                resumed = client.resume(chat.id, cursor="log.1")
                assert isinstance(list(resumed.follow())[-1], Completed)
                with pytest.raises(Closed, match="resumed"):
                    chat.send("hi")
                client.delete(chat.id)

        await beside(program)


async def test_leaving_a_stream_closes_its_connection(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.answer = hanging(said("Once upon"))

    def program() -> None:
        with Client(gateway.url) as client:
            chat = client.chat(MODEL)
            for _ in chat.stream("a story"):
                break
            assert [item["role"] for item in chat.history] == ["user", "assistant"]

    await beside(program)
    await asyncio.wait_for(upstream.requests[0].closed.wait(), 10)


async def test_another_thread_interrupts(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda _: [Step.HANG]
    with Client(gateway.url) as client:
        chat = client.chat(MODEL)
        sending = asyncio.create_task(beside(lambda: chat.send("hi")))
        await upstream.count(1)
        assert chat.interrupt()
        with pytest.raises(Interrupted):
            await sending
        await asyncio.wait_for(upstream.requests[0].closed.wait(), 10)


CTRL_C = """
import sys
from cachegate.sdk import Client
with Client(sys.argv[1]) as client:
    chat = client.chat("openai/gpt-x")
    try:
        chat.send("hi")
    except KeyboardInterrupt:
        print([item["role"] for item in chat.history], chat.send(()).text)
"""


async def test_ctrl_c_ends_what_is_waited_for_and_the_chat_goes_on(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    again = answering([said("ok")])
    upstream.answer = lambda recorded: [Step.HANG] if len(upstream.requests) == 1 else again(recorded)
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CTRL_C, gateway.url, stdout=asyncio.subprocess.PIPE
    )
    await upstream.count(1)
    program.send_signal(signal.SIGINT)
    out, _ = await asyncio.wait_for(program.communicate(), 30)
    assert out.decode().strip() == "['user'] ok"
    assert upstream.requests[0].closed.is_set()


async def test_closing_ends_what_waits_and_says_so_afterwards(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.answer = lambda _: [Step.HANG]
    client = Client(gateway.url)
    chat = client.chat(MODEL)
    sending = asyncio.create_task(beside(lambda: chat.send("hi")))
    await upstream.count(1)
    await beside(client.close)
    with pytest.raises(Closed):
        await sending
    client.close()
    for call in (lambda: chat.send("hi"), lambda: list(chat.stream("hi")), chat.compact, client.threads):
        with pytest.raises(Closed):
            call()
    assert not chat.interrupt()


def test_a_wrong_address_leaves_no_thread_behind() -> None:
    with pytest.raises(ValueError, match="base_url"):
        Client("ftp://x")


@pytest.mark.parametrize("begun", [True, False])
def test_ctrl_c_before_the_wait_ends_it_as_well(monkeypatch: pytest.MonkeyPatch, *, begun: bool) -> None:
    loop, started, cancelled = LoopThread(), threading.Event(), threading.Event()
    handed = loop._loop.call_soon_threadsafe

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    def interrupted(callback: Callable[[], None]) -> None:
        monkeypatch.setattr(loop._loop, "call_soon_threadsafe", handed)
        if begun:
            handed(callback)
            started.wait(10)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop._loop, "call_soon_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loop.run(work())
    assert (started.is_set(), cancelled.is_set()) == (begun, begun), "what did not begin never ran"
    loop.close(asyncio.sleep(0))
