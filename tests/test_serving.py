"""A worker without a supervisor; with one it is tested in tests/server/test_supervisor.py and tests/upgrade/."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cachegate.runtime_directory import VARIABLE
from cachegate.server.inheritance import environment


@pytest.mark.skipif(os.name != "posix", reason="sockets are inherited on POSIX only")
def test_a_worker_that_cannot_start_says_so_over_its_line(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("listn: 1\n")
    supervisor, link = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listening, supervisor:
        with link:
            done = subprocess.run(
                [sys.executable, "-m", "cachegate.serving", "--config", str(path)],
                env={
                    **os.environ,
                    **environment((listening.fileno(),), link.fileno(), 1),
                    VARIABLE: str(tmp_path),
                },
                pass_fds=(listening.fileno(), link.fileno()),
                timeout=60,
                check=False,
            )
        said = json.loads(supervisor.recv(4_096))
    assert done.returncode == 1
    assert "listn: there is no such key. Did you mean listen?" in said["failed"]
