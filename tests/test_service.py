"""The units for systemd: their text, where they go, and that systemd takes them."""

import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cachegate.service import Service, differing, folder, next_commands, units, write
from supervised_program import short_runtime_directory

OWN = Service((sys.executable, "-m", "cachegate"), Path("/home/a/c.yaml"), ("127.0.0.1", 4283), 900, 2, None)


def test_a_service_of_ones_own_upgrades_on_reload_and_listens_on_the_socket_of_the_manager() -> None:
    files = units(OWN)
    service = files["cachegate.service"].splitlines()
    assert f"ExecStart={sys.executable} -m cachegate serve --workers 2 --config /home/a/c.yaml" in service
    assert f"ExecReload={sys.executable} -m cachegate upgrade --config /home/a/c.yaml" in service
    assert {"Type=notify", "KillMode=mixed", "TimeoutStopSec=1020", "WantedBy=default.target"} <= set(service)
    assert not [line for line in service if line.startswith("User=")]
    assert "ListenStream=127.0.0.1:4283" in files["cachegate.socket"].splitlines()


def test_a_service_of_the_machine_names_its_user_and_has_a_directory_of_its_own() -> None:
    files = units(replace(OWN, user="a", listen=("::1", 80), config=None))
    service = files["cachegate.service"].splitlines()
    assert {"User=a", "RuntimeDirectory=cachegate", "Environment=XDG_RUNTIME_DIR=/run/cachegate"} <= set(service)
    assert "WantedBy=multi-user.target" in service
    assert "ListenStream=[::1]:80" in files["cachegate.socket"].splitlines()


def test_a_path_with_odd_signs_stays_one_word_that_nothing_is_put_into() -> None:
    service = units(replace(OWN, config=Path("/a b/%h/$HOME.yaml")))["cachegate.service"]
    assert "--config '/a b/%%h/$$HOME.yaml'" in service


@pytest.mark.parametrize("user", [None, "root"])
def test_the_service_manager_takes_the_units(tmp_path: Path, user: str | None) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze is not installed")
    write(units(replace(OWN, user=user)), tmp_path)
    paths = [str(path) for path in sorted(tmp_path.iterdir())]
    scope = ["--user"] if user is None else []
    with short_runtime_directory() as runtime:
        done = subprocess.run(
            [verify, "verify", *scope, "--man=no", *paths],
            env={**os.environ, "XDG_RUNTIME_DIR": runtime},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert (done.returncode, [line for line in done.stderr.splitlines() if "cachegate" in line]) == (0, [])


def install(home: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_CONFIG_HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-m", "cachegate", "install-service", "--user", *flags],
        env={**environ, "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_command_writes_once_and_never_over_something_else(tmp_path: Path) -> None:
    where = tmp_path / "systemd" / "user"
    assert f"# {where}/cachegate.service" in install(tmp_path, "--print").stdout
    assert not where.exists()
    done = install(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "systemctl --user enable --now cachegate.socket cachegate.service" in done.stdout
    assert install(tmp_path).returncode == 0, "the same again is no harm"
    (where / "cachegate.socket").write_text("mine\n")
    refused = install(tmp_path)
    assert refused.returncode == 1
    assert f"Something else stands in {where}/cachegate.socket." in refused.stderr
    assert (where / "cachegate.socket").read_text() == "mine\n"
    assert install(tmp_path, "--force").returncode == 0
    assert "ListenStream" in (where / "cachegate.socket").read_text()


def test_where_the_units_go(tmp_path: Path) -> None:
    assert folder("root", {}) == Path("/etc/systemd/system")
    assert folder(None, {"XDG_CONFIG_HOME": "/c"}) == Path("/c/systemd/user")
    assert next_commands("root")[0] == "systemctl daemon-reload"
    assert differing({"a": "1"}, tmp_path) == []


@pytest.mark.skipif(os.name != "posix", reason="there is no service manager like this")
def test_a_socket_of_the_manager_is_served_and_the_manager_is_told(tmp_path: Path) -> None:
    """A stand-in for systemd: the socket as descriptor 3, notices to a socket of datagrams."""
    path = tmp_path / "c.yaml"
    path.write_text("providers: {synthetic: {kind: synthetic}}\n")
    with (
        short_runtime_directory() as runtime,
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices,
    ):
        notices.bind(f"{runtime}/n")
        notices.settimeout(30)
        starter = (
            "import os, sys\n"
            f"os.dup2({listening.fileno()}, 3)\n"
            "os.environ |= {'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': '1'}\n"
            "os.execv(sys.executable, [sys.executable, '-m', 'cachegate', 'serve', *sys.argv[1:]])\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", starter, "--config", str(path)],
            pass_fds=(listening.fileno(),),
            env={**os.environ, "XDG_RUNTIME_DIR": runtime, "NOTIFY_SOCKET": f"{runtime}/n"},
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with process:
            assert notices.recv(100) == b"READY=1"
            assert process.stdout is not None
            port = listening.getsockname()[1]
            assert process.stdout.readline().startswith(f"Cachegate listens on http://127.0.0.1:{port} ")
            with socket.create_connection(("127.0.0.1", port), timeout=30) as caller:
                caller.sendall(b"HEAD / HTTP/1.0\r\nhost: localhost\r\n\r\n")
                assert caller.recv(15).startswith(b"HTTP/1.0 200")
            process.terminate()
            assert notices.recv(100) == b"STOPPING=1"
            assert process.wait(30) == 0
