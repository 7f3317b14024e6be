"""The gateway as a service of systemd: the text of its units, and where they go.

The socket belongs to systemd, so the port answers from the start of the machine on and through a restart; an upgrade
goes through our own supervisor, because systemd cannot let two generations overlap.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NAME = "cachegate"
_STOP_MARGIN_S = 120
"""From the end of the drain to the kill: a little more than the supervisor takes for it itself."""


@dataclass(frozen=True, slots=True)
class Service:
    """What is installed."""

    program: tuple[str, ...]
    """The command, such as `/opt/venv/bin/cachegate`."""
    config: Path | None
    listen: tuple[str, int]
    drain_s: float
    workers: int
    user: str | None
    """Whose service it is when it starts with the machine; None for one of the person's own session."""


def units(service: Service) -> dict[str, str]:
    """Return the files, by name."""
    return {f"{NAME}.service": _service(service), f"{NAME}.socket": _socket(service)}


def folder(user: str | None, environ: Mapping[str, str]) -> Path:
    """Return where the units belong."""
    if user is not None:
        return Path("/etc/systemd/system")
    return Path(environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")) / "systemd" / "user"


def differing(files: Mapping[str, str], where: Path) -> list[Path]:
    """Return the files that stand there already with another content."""
    paths = {where / name: text for name, text in files.items()}
    return [path for path, text in paths.items() if path.exists() and path.read_text("utf-8") != text]


def write(files: Mapping[str, str], where: Path) -> None:
    """Write the files. Raises OSError where this person may not."""
    where.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (where / name).write_text(text, "utf-8")


def next_commands(user: str | None) -> list[str]:
    """Return what is to be run after the files are in place."""
    scope = "systemctl" if user is not None else "systemctl --user"
    return [
        f"{scope} daemon-reload",
        f"{scope} enable --now {NAME}.socket {NAME}.service",
        f"{scope} reload {NAME}        # after an upgrade or a change of the configuration",
    ]


def _service(service: Service) -> str:
    config = ("--config", str(service.config)) if service.config else ()
    serve = _line(*service.program, "serve", "--workers", str(service.workers), *config)
    upgrade = _line(*service.program, "upgrade", *config)
    # A service of the machine has no directory of a session; its own one is kept to itself by systemd.
    own = "" if service.user is None else f"User={service.user}\nRuntimeDirectory={NAME}\nRuntimeDirectoryMode=0700\n"
    own += "" if service.user is None else f"Environment=XDG_RUNTIME_DIR=/run/{NAME}\n"
    return f"""\
[Unit]
Description=Cachegate, an LLM gateway
Requires={NAME}.socket
After=network-online.target {NAME}.socket
Wants=network-online.target

[Service]
Type=notify
NotifyAccess=main
ExecStart={serve}
ExecReload={upgrade}
{own}KillMode=mixed
TimeoutStopSec={round(service.drain_s) + _STOP_MARGIN_S}
Restart=on-failure
NoNewPrivileges=yes

[Install]
WantedBy={"default.target" if service.user is None else "multi-user.target"}
"""


def _socket(service: Service) -> str:
    host, port = service.listen
    shown = f"[{host}]" if ":" in host else host
    return f"""\
[Unit]
Description=Where Cachegate listens

[Socket]
ListenStream={shown}:{port}
Backlog=1024

[Install]
WantedBy=sockets.target
"""


def _line(*words: str) -> str:
    """Return a command as a unit has it: quoted, and without anything that systemd would replace."""
    return " ".join(shlex.quote(word) for word in words).replace("%", "%%").replace("$", "$$")
