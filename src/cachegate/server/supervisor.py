"""The supervisor: a small process that owns the listening sockets and lets workers serve on them.

`supervision.py` decides; here are the processes, sockets and signals. It runs the code it was started with until its
end, so it imports little, and nothing later than at its start. Workers are started by exec, never forked.
"""

import contextlib
import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from cachegate import __version__, runtime_directory
from cachegate.observe.log import LOGGER, configure
from cachegate.runtime_directory import RuntimeDirectoryRefused
from cachegate.server import service_manager, supervisor_socket
from cachegate.server.claim import Claim, claim
from cachegate.server.inheritance import environment, pass_on
from cachegate.server.supervision import next_deadline_ms, step, waiting
from cachegate.server.supervision_values import (
    Action,
    Answer,
    Check,
    Checked,
    Counted,
    EndCheck,
    Event,
    Exit,
    Gone,
    Greet,
    Kill,
    Log,
    Notify,
    Ready,
    Report,
    Start,
    State,
    StatusAsked,
    StopAsked,
    Tell,
    Ticked,
    UpgradeAsked,
    Wait,
)
from cachegate.server.supervisor_socket import Reply

SETTINGS_VARIABLE = "CACHEGATE_SUPERVISOR"
_LINE_BYTES_MAX = 65_536
_QUESTION_BYTES_MAX = 64
_PROBLEM_CHARS_MAX = 4_000
"""Of what a failed check printed; a configuration's problems fit many times over."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a gateway was asked to serve; made by `cachegate serve`."""

    workers: int
    address: str
    """As the greeting and the status show it."""
    directory: str
    """The runtime directory."""
    listening: tuple[int, ...]
    worker: tuple[str, ...]
    """The command of a worker."""
    check: tuple[str, ...]
    """The command that exits with 0 when the installed code starts and the configuration is in order."""
    greeting: tuple[str, ...]
    log_json: bool
    quiet: bool


@dataclass(slots=True)
class Process:
    """A running worker and our end of its line."""

    program: subprocess.Popen[bytes]
    link: socket.socket
    unread: bytes = b""
    failure: str = ""
    """What it said of its end."""
    hung_up: bool = False


@dataclass(frozen=True, slots=True)
class CheckRun:
    """A check under way."""

    program: subprocess.Popen[bytes]
    output: IO[bytes]

    def problem(self) -> str:
        """Return what was found; nothing when all is in order."""
        with self.output:
            if self.program.returncode == 0:
                return ""
            self.output.seek(0)
            told = self.output.read().decode("utf-8", "replace").strip()
        if "Traceback (most recent call last)" in told:
            LOGGER.warning("%s", told[-_PROBLEM_CHARS_MAX:])
            told = f"The installed code does not start: {told.splitlines()[-1]}"
        return told[:_PROBLEM_CHARS_MAX] or f"The check {_how_it_ended(self.program.returncode)}."


class Supervisor:
    """Carries out what `supervision.step` decides, and tells it what happens."""

    def __init__(self, settings: Settings, held: Claim, notices: str | None) -> None:
        self._settings = settings
        self._claim = held
        self._notices = notices
        self._state = State(settings.workers, _now_ms())
        self._events: deque[Event] = deque()
        self._selector = selectors.DefaultSelector()
        self._processes: dict[int, Process] = {}
        self._check: CheckRun | None = None
        self._askers: dict[int, socket.socket] = {}
        self._asked = 0
        self._listening = settings.listening
        self._exit_code: int | None = None
        self._on_terminal = _has_terminal()

    def run(self) -> int:
        """Supervise to the end, and return the exit code. Raises OSError where the start fails."""
        self._listen_for_signals()
        self._watch(supervisor_socket.listen(self._claim.directory), self._welcome)
        while self._exit_code is None:
            self._happen(Ticked())
            for key, _ in self._selector.select(self._patience_s()):
                key.data(key.fileobj)
        self._claim.dissolve()
        return self._exit_code

    def _patience_s(self) -> float | None:
        if self._exit_code is not None:
            return 0
        until_ms = next_deadline_ms(self._state)
        return None if until_ms is None else max(0, until_ms - _now_ms()) / 1000

    def _happen(self, event: Event) -> None:
        """Let something happen; what an action causes at once happens after all actions of its cause."""
        self._events.append(event)
        if len(self._events) > 1:
            return
        while self._events:
            self._state, actions = step(self._state, self._events[0], _now_ms())
            for action in actions:
                self._do(action)
            self._events.popleft()
            if self._state.stopping:
                self._stop_listening()

    def _do(self, action: Action) -> None:
        match action:
            case Start():
                self._start(action.worker)
            case Tell():
                self._tell(action)
            case Kill():
                self._processes[action.worker].program.kill()
            case Check():
                self._check = _begun_check(self._settings.check)
            case EndCheck():
                if self._check is not None:
                    self._check.program.kill()
            case Exit():
                self._exit_code = action.code
            case _:
                self._inform(action)

    def _inform(self, action: Answer | Report | Log | Greet | Wait | Notify) -> None:
        match action:
            case Answer():
                self._answer(action.asker, Reply(action.done, action.words, {}))
            case Report():
                self._answer(action.asker, Reply(done=True, words="", status=self._status()))
            case Log():
                LOGGER.log(logging.WARNING if action.warning else logging.INFO, "%s", action.words)
            case Greet():
                _print(*self._settings.greeting)
            case Wait():
                _print(waiting(action.running))
            case Notify():
                service_manager.notify(self._notices, action.word)

    def _start(self, worker: int) -> None:
        ours, theirs = socket.socketpair()
        environ = {
            **os.environ,
            runtime_directory.VARIABLE: self._settings.directory,
            **environment(self._listening, theirs.fileno(), self._settings.workers),
        }
        with theirs:
            try:
                program = subprocess.Popen(  # noqa: S603 -- ourselves
                    self._settings.worker,
                    env=environ,
                    pass_fds=(*self._listening, theirs.fileno()),
                    stdin=subprocess.DEVNULL,
                    process_group=0,  # a terminal's Ctrl-C is for the supervisor, which tells the workers
                )
            except OSError as error:
                ours.close()
                self._happen(Gone(worker, f"could not be started: {error.strerror}"))
                return
        self._processes[worker] = Process(program, ours)
        self._watch(ours, lambda _: self._hear(worker))

    def _tell(self, action: Tell) -> None:
        with contextlib.suppress(OSError):  # a worker that is gone is told of by its end
            self._processes[action.worker].link.sendall(f"{action.order.value}\n".encode())

    def _hear(self, worker: int) -> None:
        """Take in what a worker says. A field of a later version is left out."""
        process = self._processes.get(worker)
        if process is None:  # its end was heard of together with its last words, and those were taken in first
            return
        try:
            data = process.link.recv(_LINE_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(process.link)
            process.hung_up = True
        *lines, process.unread = (process.unread + data).split(b"\n")
        process.unread = process.unread[-_LINE_BYTES_MAX:]
        for line in lines:
            said = json.loads(line)
            if "ready" in said:
                facts = said["ready"]
                self._happen(Ready(worker, str(facts["version"]), round(facts["drainSeconds"] * 1000)))
            if "running" in said:
                self._happen(Counted(worker, int(said["running"])))
            if "failed" in said:
                process.failure = f"says: {said['failed']}"

    def _reap(self) -> None:
        """Note which processes have ended, after everything they still said."""
        for worker, process in tuple(self._processes.items()):
            if process.program.poll() is None:
                continue
            while not process.hung_up:
                self._hear(worker)
            process.link.close()
            del self._processes[worker]
            self._happen(Gone(worker, process.failure or _how_it_ended(process.program.returncode)))
        check = self._check
        if check is not None and check.program.poll() is not None:
            self._check = None
            self._happen(Checked(check.problem()))

    def _listen_for_signals(self) -> None:
        told, teller = socket.socketpair()
        teller.settimeout(0)
        signal.set_wakeup_fd(teller.fileno(), warn_on_full_buffer=False)
        self._teller = teller
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup means what it says
                signal.signal(number, lambda *_: None)
        self._watch(told, self._signalled)

    def _signalled(self, told: socket.socket) -> None:
        for number in told.recv(_LINE_BYTES_MAX):
            match number:
                case signal.SIGCHLD:
                    self._reap()
                case signal.SIGHUP if not self._on_terminal or _has_terminal():
                    self._happen(UpgradeAsked())
                case _:
                    self._happen(StopAsked())

    def _welcome(self, listener: socket.socket) -> None:
        asker, _ = listener.accept()
        self._watch(asker, self._listen_to)

    def _listen_to(self, asker: socket.socket) -> None:
        self._selector.unregister(asker)
        try:
            question = asker.recv(_QUESTION_BYTES_MAX)
        except OSError:
            question = b""
        self._asked += 1
        self._askers[self._asked] = asker
        match question:
            case b"upgrade\n":
                self._happen(UpgradeAsked(self._asked))
            case b"status\n":
                self._happen(StatusAsked(self._asked))
            case _:
                words = "This supervisor knows `upgrade` and `status`, and was asked something else."
                self._answer(self._asked, Reply(done=False, words=words, status={}))

    def _answer(self, asker: int, answer: Reply) -> None:
        supervisor_socket.reply(self._askers.pop(asker), answer)

    def _watch(self, source: socket.socket, callback: Callable[[socket.socket], None]) -> None:
        source.settimeout(0)
        self._selector.register(source, selectors.EVENT_READ, callback)

    def _stop_listening(self) -> None:
        """Let go of the address: a new connection is refused and waits for nobody, and a new gateway may start."""
        self._claim.release(supervisor_socket.NAME)
        for number in self._listening:
            os.close(number)
        self._listening = ()

    def _status(self) -> dict[str, object]:
        state, now_ms = self._state, _now_ms()
        return {
            "address": self._settings.address,
            "pid": os.getpid(),
            "version": __version__,
            "uptimeSeconds": (now_ms - state.started_ms) // 1000,
            "generation": state.generation,
            "upgrading": state.upgrade is not None,
            "workers": [
                {
                    "pid": self._processes[worker.id].program.pid,
                    "generation": worker.generation,
                    "version": worker.version,
                    "phase": worker.phase.value,
                    "phaseSeconds": (now_ms - worker.since_ms) // 1000,
                    "inFlight": worker.running,
                }
                for worker in state.workers
                if worker.id in self._processes
            ],
        }


def _begun_check(command: tuple[str, ...]) -> CheckRun:
    output = tempfile.TemporaryFile()  # noqa: SIM115 -- closed when it is read
    program = subprocess.Popen(  # noqa: S603 -- ourselves
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=output, process_group=0
    )
    return CheckRun(program, output)


def _how_it_ended(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}; its log says why"


def _print(*lines: str) -> None:
    with contextlib.suppress(OSError):  # whoever read this is gone; the gateway is not for them alone
        for line in lines:
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def _has_terminal() -> bool:
    """Tell whether a terminal controls this process; one that is closed sends the signal that asks for an upgrade."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def main() -> int:
    """Supervise as `SETTINGS_VARIABLE` says; returns the exit code."""
    settings = msgspec.json.decode(os.environ.pop(SETTINGS_VARIABLE), type=Settings)
    notices = service_manager.forget(os.environ)
    pass_on(*settings.listening, heirs=False)
    configure(as_json=settings.log_json, quiet=settings.quiet)
    try:
        return Supervisor(settings, claim(Path(settings.directory)), notices).run()
    except (OSError, RuntimeDirectoryRefused) as error:
        LOGGER.error("The gateway cannot be supervised: %s", error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
