"""The line between a worker and its supervisor, from the worker's end."""

import json
import socket

import cachegate
from cachegate.server.worker_link import line_over, say_failed


async def test_what_a_worker_says_is_a_line_each_and_orders_are_lines_too() -> None:
    supervisor, link = socket.socketpair()
    with supervisor:
        line = await line_over(link)
        line.say_ready(900)
        line.say_running(3)
        said = [json.loads(text) for text in supervisor.recv(1_000).splitlines()]
        assert said == [{"ready": {"version": cachegate.__version__, "drainSeconds": 900}}, {"running": 3}]
        supervisor.sendall(b"retire\ncount\n")
        assert [await line.next_order(), await line.next_order()] == ["retire", "count"]
    assert await line.next_order() == "", "the end of the line is the end of the supervisor"
    line.close()


def test_why_a_worker_does_not_start_is_said_even_to_nobody() -> None:
    supervisor, link = socket.socketpair()
    with link:
        with supervisor:
            say_failed(link, "no such key")
            assert json.loads(supervisor.recv(1_000)) == {"failed": "no such key"}
        say_failed(link, "no such key")
