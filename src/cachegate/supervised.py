"""From `cachegate serve` to a supervisor with its workers, and questions to one that runs."""

import contextlib
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from cachegate.config import Config
from cachegate.runtime_directory import location
from cachegate.server.app import BACKLOG
from cachegate.server.inheritance import pass_on
from cachegate.server.service_manager import inherited_sockets
from cachegate.server.supervisor import SETTINGS_VARIABLE, Settings

SUPPORTED = os.name == "posix"
"""Sockets are handed to other processes by inheritance, which Windows does not have."""
WORKERS_MAX = 64
"""More than the cores of most machines; each worker takes some 60 MB."""


@dataclass(frozen=True, slots=True)
class Wish:
    """How the person asked to serve."""

    workers: int
    config: Path | None
    listen: str | None
    log_json: bool
    quiet: bool


def supervise(config: Config, wish: Wish, greeting: Callable[[str, int], list[str]]) -> NoReturn:
    """Become the supervisor: this process is replaced, and keeps its id and its sockets.

    Raises OSError when the address is taken.
    """
    listening = _listening(config.address, os.environ)
    host, port = listening[0].getsockname()[:2]
    settings = Settings(
        workers=wish.workers,
        address=f"{host}:{port}",
        directory=str(location((config.address[0], config.address[1] or port), os.environ)),
        listening=tuple(opened.detach() for opened in listening),
        worker=(*own_program("cachegate.serving"), *_worker_flags(wish)),
        check=(*own_program("cachegate"), "check", *_config_flags(wish), "--serving", config.listen),
        greeting=tuple(greeting(host, port)),
        log_json=wish.log_json,
        quiet=wish.quiet,
    )
    pass_on(*settings.listening, heirs=True)
    environ = {**os.environ, SETTINGS_VARIABLE: json.dumps(asdict(settings))}
    sys.stdout.flush()
    os.execve(sys.executable, own_program("cachegate.server.supervisor"), environ)  # noqa: S606 -- ourselves


def status_lines(told: Mapping[str, Any]) -> list[str]:
    """Return a supervisor's status for people."""
    state = "upgrading" if told["upgrading"] else "serving"
    first = (
        f"{told['address']}  {state}  generation {told['generation']}, up {_span(told['uptimeSeconds'])} "
        f"(supervisor {told['pid']}, version {told['version']})"
    )
    return [first, *(_worker_line(worker) for worker in told["workers"])]


def _worker_line(worker: Mapping[str, Any]) -> str:
    running = "in flight unknown" if worker["inFlight"] is None else f"{worker['inFlight']} in flight"
    since = f"{worker['phase']} for {_span(worker['phaseSeconds'])}"
    version = f"  version {worker['version']}" if worker["version"] else ""
    return f"  worker {worker['pid']}  generation {worker['generation']}  {since}  {running}{version}"


def _span(seconds: int) -> str:
    """Return a duration in its two largest units."""
    minutes, hours, days = seconds // 60, seconds // 3_600, seconds // 86_400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"


def own_program(module: str) -> tuple[str, ...]:
    """Return the command that runs a module of this package, as it is installed when the command runs.

    The folder one happens to be in is no place to take code from, unless this process was started so itself.
    """
    return (sys.executable, *(() if os.getcwd() in sys.path else ("-P",)), "-m", module)  # noqa: PTH109 -- as in sys.path


def _config_flags(wish: Wish) -> tuple[str, ...]:
    return (
        *(("--config", str(wish.config.absolute())) if wish.config else ()),
        *(("--listen", wish.listen) if wish.listen else ()),
    )


def _worker_flags(wish: Wish) -> tuple[str, ...]:
    return (
        *_config_flags(wish),
        *(("--log-json",) if wish.log_json else ()),
        *(("--quiet",) if wish.quiet else ()),
    )


def _listening(address: tuple[str, int], environ: Mapping[str, str]) -> tuple[socket.socket, ...]:
    """Return the sockets that the service manager opened for us, else our own. Raises OSError when it is taken."""
    inherited = inherited_sockets(environ, os.getpid())
    if inherited:
        return tuple(socket.socket(fileno=number) for number in inherited)
    host, port = address
    places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    with contextlib.ExitStack() as opened:
        sockets = tuple(_bound(found[0], found[4], opened) for found in places)
        opened.pop_all()
    return sockets


def _bound(family: int, place: tuple[Any, ...], opened: contextlib.ExitStack) -> socket.socket:
    listening = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listening.bind(place)
    listening.listen(BACKLOG)
    return listening
