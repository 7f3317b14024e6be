"""Questions to a supervisor, as they travel."""

import os
import socket
import threading
from pathlib import Path

import pytest

from cachegate.server.supervisor_socket import NAME, NobodyThere, Reply, ask, listen, reply
from supervised_program import short_runtime_directory

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sockets with a path are POSIX")


def answering(listener: socket.socket, answer: Reply | None) -> threading.Thread:
    """Take one question and answer it, or hang up."""
    listener.settimeout(10)

    def once() -> None:
        asker, _ = listener.accept()
        assert asker.recv(100) == b"status\n"
        if answer is None:
            asker.close()
        else:
            reply(asker, answer)

    thread = threading.Thread(target=once)
    thread.start()
    return thread


@pytest.mark.parametrize(
    "answer", [Reply(done=True, words="", status={"generation": 3}), Reply(done=False, words="no\nway", status={})]
)
def test_an_answer_arrives_as_it_was_given(answer: Reply) -> None:
    with short_runtime_directory() as folder, listen(Path(folder)) as listener:
        thread = answering(listener, answer)
        assert ask(Path(folder), "status", 10) == answer
        thread.join()
        assert (Path(folder) / NAME).stat().st_mode & 0o777 == 0o600


def test_nobody_there_is_told_from_an_answer() -> None:
    with short_runtime_directory() as folder:
        with pytest.raises(NobodyThere):
            ask(Path(folder), "status", 10)
        with listen(Path(folder)) as listener:
            thread = answering(listener, None)
            with pytest.raises(NobodyThere):
                ask(Path(folder), "status", 10)
            thread.join()


def test_a_directory_whose_path_is_too_long_for_a_socket_serves_all_the_same(tmp_path: Path) -> None:
    deep, here = tmp_path / ("x" * 120), Path.cwd()
    deep.mkdir()
    with listen(deep) as listener:
        thread = answering(listener, Reply(done=True, words="", status={}))
        assert ask(deep, "status", 10) == Reply(done=True, words="", status={})
        thread.join()
    assert Path.cwd() == here
