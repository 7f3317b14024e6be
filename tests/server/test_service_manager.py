"""What systemd hands over, and what it is told; the convention is its own and stable."""

import os
import socket
from pathlib import Path

import pytest

from cachegate.server.service_manager import forget, inherited_sockets, notify


@pytest.mark.parametrize(
    ("environ", "sockets"),
    [
        ({}, ()),
        ({"LISTEN_PID": "7", "LISTEN_FDS": "1"}, (3,)),
        ({"LISTEN_PID": "7", "LISTEN_FDS": "2"}, (3, 4)),
        ({"LISTEN_PID": "8", "LISTEN_FDS": "1"}, ()),
        ({"LISTEN_PID": "7", "LISTEN_FDS": "many"}, ()),
    ],
)
def test_sockets_are_taken_when_they_are_meant_for_this_process(
    environ: dict[str, str], sockets: tuple[int, ...]
) -> None:
    assert inherited_sockets(environ, 7) == sockets


def test_what_was_meant_for_us_reaches_nobody_that_we_start() -> None:
    environ = {"LISTEN_PID": "7", "LISTEN_FDS": "1", "NOTIFY_SOCKET": "/run/n", "HOME": "/home/a"}
    assert forget(environ) == "/run/n"
    assert environ == {"HOME": "/home/a"}


@pytest.mark.skipif(os.name != "posix", reason="there is no service manager like this")
def test_each_word_is_a_datagram_and_a_reload_says_since_when(tmp_path: Path) -> None:
    path = str(tmp_path / "n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        notify(path, "READY")
        notify(path, "RELOADING")
        assert manager.recv(100) == b"READY=1"
        first, second = manager.recv(100).decode().split("\n")
    assert first == "RELOADING=1"
    assert int(second.removeprefix("MONOTONIC_USEC=")) > 0
    notify(path, "STOPPING")
    notify(None, "READY")
