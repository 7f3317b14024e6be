"""A thread in memory: its events go to whoever listens, and wait for whoever comes back."""

from cachegate.control.hosted import HostedThread
from cachegate.control.thread import Settings, Thread
from control.listening import Ear


def hosted() -> HostedThread:
    return HostedThread(Thread("thread_1", "t", Settings("model-x"), 1, 1), 60, lambda word: f"{word}_1")


def test_an_event_goes_to_all_who_listen_with_its_place() -> None:
    thread, one, other = hosted(), Ear(), Ear()
    thread.listeners.update({one: None, other: None})
    thread.emit("turn/started", {"turn": 1})
    thread.leave(other)
    thread.emit("turn/completed", {"turn": 1})
    params = {"threadId": "thread_1", "turn": 1, "cursor": "log_1.1"}
    assert one.frames[0] == {"jsonrpc": "2.0", "method": "turn/started", "params": params}
    assert (len(one.frames), len(other.frames), thread.cursor) == (2, 1, "log_1.2")
    assert not thread.idle
    thread.leave(one)
    assert thread.idle


def test_what_was_missed_is_told_in_a_word() -> None:
    thread = hosted()
    thread.emit("a", {})
    assert thread.missed(None) == ("none", [])
    assert thread.missed("log_1.1") == ("none", [])
    assert thread.missed("log_1.0")[0] == "replayed"
    assert thread.missed("log_0.1") == ("lost", [])
    assert (thread.shown()["status"], thread.shown_whole()["turns"]) == ("idle", [])
