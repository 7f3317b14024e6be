"""The programs under test, as processes of their own: the fake upstream, nginx and Cachegate.

The server under test runs on the first core, the load and the upstream on the second, where there are two. A program
counts as started when it says so; nothing is polled. CPU time and memory are read from /proc, over the process tree.
"""

import contextlib
import json
import os
import queue
import re
import resource
import shutil
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

NGINX_REMEDY = "nginx is not on the PATH; Debian and Ubuntu have it: apt-get install nginx-light"

_START_S = 30.0
_FAREWELL_S = 10.0
_FILES = 16_384
"""1,000 streams take 2,000 descriptors in a proxy."""
_ROOT = Path(__file__).resolve().parent.parent


class NotStarted(Exception):  # noqa: N818 -- it reads as what it is
    """A program under test did not start."""


@dataclass(frozen=True, slots=True)
class Cores:
    """Where the processes run; both the same on a machine with one core."""

    server: frozenset[int]
    load: frozenset[int]

    @classmethod
    def here(cls) -> "Cores":
        """Take the first two cores that this process may use."""
        allowed = sorted(os.sched_getaffinity(0))
        return cls(frozenset(allowed[:1]), frozenset(allowed[1:2] or allowed[:1]))

    @property
    def apart(self) -> bool:
        """Whether server and load have a core each."""
        return self.server != self.load


class Program:
    """A started program; it inherits the cores that its parent has at that moment."""

    def __init__(self, argv: list[str], says: re.Pattern[str]) -> None:
        """Start it and wait until it prints what `says` looks for. Raises NotStarted."""
        self._process = subprocess.Popen(
            argv,
            cwd=_ROOT,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._last: deque[str] = deque(maxlen=20)
        self._said: queue.Queue[re.Match[str] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout, says), daemon=True)
        self._reader.start()
        try:
            match = self._said.get(timeout=_START_S)
        except queue.Empty:
            match = None
        except BaseException:
            self.close()
            raise
        if match is None:
            self.close()
            raise NotStarted(f"{argv[0]} did not start: {' '.join(self._last)}")
        self.match = match

    @property
    def pid(self) -> int:
        """The process that was started."""
        return self._process.pid

    def close(self) -> None:
        """End it, and wait until it has gone."""
        self._process.terminate()
        try:
            self._process.wait(_FAREWELL_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(_FAREWELL_S)

    def _read(self, output: Iterable[str], says: re.Pattern[str]) -> None:
        """Read the output to its end, so that the program never waits for us."""
        waiting = True
        for line in output:
            self._last.append(line.strip())
            if waiting and (match := says.search(line)) is not None:
                waiting = False
                self._said.put(match)
        self._said.put(None)


@dataclass(frozen=True, slots=True)
class Server:
    """A way to the upstream: directly, or through a proxy."""

    name: str
    port: int
    program: Program | None = None
    """None for the direct way, which costs no server anything."""

    def cpu_ns(self) -> int:
        """CPU time of the process tree so far."""
        return 0 if self.program is None else sum(_cpu_ns(pid) for pid in _tree(self.program.pid))

    def rss(self) -> int:
        """Resident bytes of the process tree."""
        return 0 if self.program is None else sum(_rss(pid) for pid in _tree(self.program.pid))


def raise_file_limit() -> None:
    """Allow the descriptors that 1,000 streams need; the programs inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def nginx_program() -> str | None:
    """Find nginx; Debian keeps it where only root's PATH looks."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@contextlib.contextmanager
def upstream(cores: Cores) -> Iterator[int]:
    """Run the fake upstream beside the load, and yield its port."""
    with _on(cores.load):
        program = Program([sys.executable, "-m", "benchmarks.fake_upstream"], re.compile(r"listening on (\d+)"))
    with contextlib.closing(program):
        yield int(program.match.group(1))


@contextlib.contextmanager
def server(name: str, upstream_port: int, cores: Cores, folder: Path) -> Iterator[Server]:
    """Run one of the servers under test: `direct`, `nginx` or `cachegate`. `folder` is for its files."""
    if name == "direct":
        yield Server(name, upstream_port)
        return
    start = {"nginx": _nginx, "cachegate": _cachegate}[name]
    with _on(cores.server):
        program, port = start(upstream_port, folder)
    with contextlib.closing(program):
        yield Server(name, port, program)


def _cachegate(upstream_port: int, folder: Path) -> tuple[Program, int]:
    config = folder / "cachegate.yaml"
    base = json.dumps(f"http://127.0.0.1:{upstream_port}/v1")
    config.write_text(f"listen: 127.0.0.1:0\nproviders:\n  openai: {{kind: openai, baseUrl: {base}}}\n", "utf-8")
    argv = [sys.executable, "-m", "cachegate", "serve", "--config", str(config), "--quiet"]
    program = Program(argv, re.compile(r"listens on http://127\.0\.0\.1:(\d+)"))
    return program, int(program.match.group(1))


def _nginx(upstream_port: int, folder: Path) -> tuple[Program, int]:
    found = nginx_program()
    if found is None:
        raise NotStarted(NGINX_REMEDY)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    own = folder / "nginx"
    own.mkdir(exist_ok=True)
    config = own / "nginx.conf"
    config.write_text(_NGINX_CONF.format(folder=own, port=port, upstream=upstream_port, files=_FILES), "utf-8")
    argv = [found, "-p", str(own), "-c", str(config), "-e", "stderr"]
    return Program(argv, re.compile(r"start worker process \d+")), port


_NGINX_CONF = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr notice;
events {{ worker_connections {files}; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  client_max_body_size 0;
  keepalive_requests 1000000000;
  upstream model {{
    server 127.0.0.1:{upstream};
    keepalive 1024;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    location / {{
      proxy_pass http://model;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_request_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
"""


@contextlib.contextmanager
def _on(cores: frozenset[int]) -> Iterator[None]:
    """Run on these cores for a moment: a child inherits them from its first instruction on."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _tree(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                found.extend(int(child) for child in (task / "children").read_text().split())
    return found


def _cpu_ns(pid: int) -> int:
    """Read the CPU time of a process: to the nanosecond where the kernel keeps it, else to its clock tick."""
    with contextlib.suppress(OSError):
        return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return 0


def _rss(pid: int) -> int:
    for name in ("smaps_rollup", "status"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/{name}").read_text().splitlines():
                if line.startswith(("Rss:", "VmRSS:")):
                    return int(line.split()[1]) * 1_024
    return 0
