"""What goes from a supervisor to a worker, and to nobody behind it."""

import os
import socket

from cachegate.server.inheritance import WORKERS_VARIABLE, environment, inherit, pass_on


def test_a_worker_takes_the_sockets_over_and_passes_them_to_nobody() -> None:
    listening, link = socket.socket(), socket.socket()
    numbers = (listening.detach(), link.detach())
    pass_on(*numbers, heirs=True)
    environ = environment(numbers[:1], numbers[1], 3)
    inherited = inherit(environ)
    assert environ == {WORKERS_VARIABLE: "3"}, "the number stays for those who have to say it"
    assert [found.fileno() for found in (*inherited.sockets, inherited.link)] == list(numbers)
    assert not any(map(os.get_inheritable, numbers))
    for found in (*inherited.sockets, inherited.link):
        found.close()
