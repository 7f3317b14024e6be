"""The command line: each command reads its input, calls one function of the house, and prints."""

import asyncio
import contextlib
import getpass
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from cachegate import __version__
from cachegate import demo as demonstration
from cachegate.assembly import COPILOT_TOKENS
from cachegate.config import Config, Loaded, find, load, parse_listen
from cachegate.errors import BadInput, ConfigError, UpstreamError
from cachegate.launch import CLIENTS, plan
from cachegate.provider_configs import (
    ClaudeCliProviderConfig,
    CopilotProviderConfig,
    HttpProviderConfig,
    ProviderConfig,
    SyntheticProviderConfig,
)
from cachegate.providers.claude_cli.self_test import SelfTestFailed, self_test
from cachegate.providers.headers import GATEWAY_KEY_HEADER
from cachegate.providers.presets import PRESETS
from cachegate.runtime_directory import VARIABLE, location
from cachegate.server.app import App
from cachegate.server.run import serve as serve_until_signal
from cachegate.server.supervisor_socket import NobodyThere, Reply, ask
from cachegate.service import Service, differing, folder, next_commands, units, write
from cachegate.serving import Serving
from cachegate.serving import serve as serve_alone
from cachegate.supervised import SUPPORTED, WORKERS_MAX, Wish, own_program, status_lines, supervise
from cachegate.wire.usage_report import PROTOCOLS, PROVIDERS, Question, report

cli = typer.Typer(
    name="cachegate",
    help="An LLM gateway for coding agents that stops a large conversation when its prompt cache is no longer reused.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="YAML file; default: $CACHEGATE_CONFIG, then the user's own.")
]
RunningOption = Annotated[
    str | None, typer.Option(help="host:port of the running gateway, where the configuration says another one now.")
]
_START_S = 15.0
"""A gateway starts in well under a second; a machine under load gets this long."""


def main() -> None:
    """Run the command line."""
    cli()


@cli.command()
def serve(
    config: ConfigOption = None,
    listen: Annotated[str | None, typer.Option(help="host:port instead of the configured one.")] = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="One JSON object per line instead of text.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log only what went wrong.")] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            min=0, max=WORKERS_MAX, help="Processes that serve beside each other; 0: this one, without upgrades."
        ),
    ] = None,
) -> None:
    """Start the gateway and serve until Ctrl-C."""
    loaded = _load(config, listen)
    count = int(SUPPORTED) if workers is None else workers

    def greeting(host: str, port: int) -> list[str]:
        return _greeting(loaded, _url(host, port))

    async def life(app: App) -> None:
        def say(*lines: str) -> None:
            print(*lines, sep="\n", flush=True)

        await serve_until_signal(app, lambda host, port: say(*greeting(host, port)), say)

    try:
        if count and SUPPORTED:
            supervise(loaded.config, Wish(count, config, listen, log_json, quiet), greeting)
        runtime = Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None
        serve_alone(Serving(loaded.config, log_json, quiet, runtime), life)
    except ConfigError as error:
        _fail(str(error))
    except OSError as error:
        _fail(
            f"Cannot listen on {loaded.config.listen}: {error.strerror or error}. Stop what uses it, or set --listen."
        )


@cli.command()
def upgrade(config: ConfigOption = None, listen: RunningOption = None) -> None:
    """Take over the installed version and the configuration as they are now, without ending a running answer."""
    answer = _ask_supervisor(config, listen, "upgrade")
    if not answer.done:
        _fail(answer.words)
    print(answer.words)


@cli.command()
def status(
    config: ConfigOption = None,
    listen: RunningOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON.")] = False,
) -> None:
    """Show the workers of the running gateway."""
    told = _ask_supervisor(config, listen, "status").status
    print(json.dumps(told, indent=2) if as_json else "\n".join(status_lines(told)))


@cli.command()
def install_service(
    *,
    config: ConfigOption = None,
    user: Annotated[bool, typer.Option("--user", help="For your own session instead of the whole machine.")] = False,
    workers: Annotated[int, typer.Option(min=1, max=WORKERS_MAX, help="Processes that serve beside each other.")] = 1,
    show: Annotated[bool, typer.Option("--print", help="Print the files instead of writing them.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that say something else.")] = False,
) -> None:
    """Write the units for systemd: a service that upgrades in place, and the socket that it listens on."""
    loaded = _load(config, None)
    owner = None if user else os.environ.get("SUDO_USER") or getpass.getuser()
    found = find(config, os.environ)
    files = units(
        Service(
            program=own_program("cachegate"),
            config=found.absolute() if found else None,
            listen=loaded.config.address,
            drain_s=loaded.config.limits.drain_seconds,
            workers=workers,
            user=owner,
        )
    )
    where = folder(owner, os.environ)
    if show:
        print("\n".join(f"# {where / name}\n{text}" for name, text in files.items()), end="")
        return
    different = differing(files, where)
    if different and not force:
        names = ", ".join(map(str, different))
        _fail(f"Something else stands in {names}. See what would be written with --print, and overwrite with --force.")
    try:
        write(files, where)
    except OSError as error:
        _fail(f"{where} cannot be written: {error.strerror}. Run this as root, or for your own session with --user.")
    print(f"Wrote {' and '.join(files)} to {where}. Next:", *next_commands(owner), sep="\n  ")


@cli.command()
def check(
    config: ConfigOption = None,
    listen: Annotated[str | None, typer.Option(hidden=True)] = None,
    serving: Annotated[str | None, typer.Option(hidden=True, help="Where the gateway listens that upgrades.")] = None,
) -> None:
    """Check the configuration and say what it means."""
    loaded = _load(config, listen)
    if serving is not None and serving != loaded.config.listen:
        _fail(
            f"listen: the address cannot change in an upgrade, from {serving} to {loaded.config.listen}. "
            "Change it back, or stop the gateway and start it again."
        )
    print(f"{loaded.source}: in order")
    for line in _summary(loaded.config):
        print(line)


@cli.command()
def schema() -> None:
    """Print the JSON Schema of the configuration, for editors."""
    print(json.dumps(Config.model_json_schema(by_alias=True), indent=2))


@cli.command()
def diagnostics(
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="The records as JSON.")] = False,
) -> None:
    """Show the guard's recent decisions in the running gateway."""
    settings = _load(config, None).config
    url = _url(*settings.address)
    body = _fetch(f"{url}/diagnostics/recent", _key(settings))
    if body is None:
        _fail(f"No gateway answers at {url}. Start it with: cachegate serve")
    records = json.loads(body)["records"]
    if as_json:
        print(json.dumps(records, indent=2))
        return
    table = Table("time", "conversation", "mode", "outcome", "reason", "count", "cause", "input", "cached")
    for record in records:
        numbers = (record["inputTokens"], record["cachedTokens"])
        unknown = "-" if record["outcome"] == "blocked" else "not reported"  # what was stopped measured nothing
        shown = (unknown if number is None else f"{number:,}" for number in numbers)
        fixed = (record["at"][11:19], record["key"][:8], record["mode"], record["outcome"], record["reason"])
        table.add_row(*fixed, str(record["count"]), record["cause"], *shown)
    Console().print(table if records else "No decisions yet.")


@cli.command()
def read_usage(
    *,
    provider: Annotated[str, typer.Option(help=f"Whose answer it is: {', '.join(PROVIDERS)}.")],
    protocol: Annotated[
        str | None, typer.Option(help=f"{', '.join(PROTOCOLS)}; where the provider has several.")
    ] = None,
    sse: Annotated[bool, typer.Option("--sse", help="The payload is a stream of server-sent events.")] = False,
    status: Annotated[int, typer.Option(help="The HTTP status the payload came with.")] = 200,
    zero_is_unknown: Annotated[bool, typer.Option("--zero-is-unknown", help="As zeroIsUnknown: true.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON.")] = False,
) -> None:
    """Print what the gateway would record of a provider's answer, given on standard input."""
    if sys.stdin.isatty():
        print("Paste the provider's answer; end with Ctrl-D.", file=sys.stderr)
    question = Question(provider, protocol, streamed=sse, status=status, zero_is_unknown=zero_is_unknown)
    try:
        told = report(question, sys.stdin.buffer.read())
    except BadInput as error:
        _fail(error.message)
    print(json.dumps(told.as_json(), indent=2) if as_json else "\n".join(told.lines()))


@cli.command()
def demo() -> None:
    """Show the guard at work with the embedded provider; exits non-zero if it does not do what it promises."""
    try:
        demonstration.run(print)
    except ModuleNotFoundError as error:
        _fail(f"The demonstration needs the official SDKs ({error.name}). Install them: pip install 'cachegate[demo]'")
    except demonstration.DemoFailed as error:
        _fail(f"The demonstration failed: {error}")
    print("The guard did what it promises.")


@cli.command()
def doctor(
    program: Annotated[
        str | None, typer.Option(help="Claude Code's program; otherwise it is looked for where installers put it.")
    ] = None,
) -> None:
    """See whether live sessions work with the Claude Code on this machine; needs no account and asks no model."""
    try:
        asyncio.run(self_test(program, print))
    except UpstreamError as error:
        _fail(error.message)
    except SelfTestFailed as error:
        _fail(f"Live sessions do not work with this program: {error}")
    print("Live sessions work with this program.")


@cli.command(
    # What stands behind the client's name is the client's, also where it looks like an option of ours.
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
)
def run(context: typer.Context, client: str, config: ConfigOption = None) -> None:
    """Start claude, codex or opencode through the gateway; everything after its name goes to it.

    A gateway that is not running yet is started for as long as the client runs.
    """
    if client not in CLIENTS:
        _fail(f"cachegate run knows {', '.join(CLIENTS)}; not {client!r}.")
    if shutil.which(client) is None:
        _fail(f"{client} is not on your PATH. Install it first, then run this again.")
    loaded = _load(config, None)
    with _gateway(loaded.config, config) as url:
        started = plan(client, url, _key(loaded.config), tuple(context.args), os.environ)
        # Ctrl-C is meant for the client; a handler, unlike SIG_IGN, is not inherited by it.
        signal.signal(signal.SIGINT, lambda *_: None)
        code = subprocess.call(started.argv, env=dict(started.environ))  # noqa: S603 -- what the person asked for
    raise typer.Exit(code)


@cli.command()
def providers(config: ConfigOption = None) -> None:
    """List the kinds of providers, what each speaks, and which are configured."""
    rows = _load(config, None).config.providers
    table = Table("kind", "speaks", "key", "address", "configured as")
    for kind, preset in PRESETS.items():
        names = ", ".join(name for name, row in rows.items() if row.kind == kind)
        speaks = ", ".join(dict.fromkeys(protocol.value for protocol, _ in preset.paths))
        table.add_row(kind, speaks, preset.key_variable or "-", preset.base_url or "(yours)", names or "-")
    for kind, key, address in (
        ("claude-cli", "CLAUDE_CODE_OAUTH_TOKEN", "(the `claude` program)"),
        ("copilot", COPILOT_TOKENS[0], "(its own runtime)"),
        ("synthetic", "-", "(embedded)"),
    ):
        names = ", ".join(name for name, row in rows.items() if row.kind == kind)
        table.add_row(kind, "messages, responses, chat", key, address, names or "-")
    Console().print(table)


@cli.command()
def version() -> None:
    """Print the version."""
    print(f"cachegate {__version__}")


@contextlib.contextmanager
def _gateway(config: Config, path: Path | None) -> Iterator[str]:
    """Yield the address of a running gateway; start one when nothing answers there."""
    url = _url(*config.address)
    if _fetch(f"{url}/health", None) is not None:
        yield url
        return
    command = [sys.executable, "-m", "cachegate", "serve", "--quiet", *(["--config", str(path)] if path else [])]
    log = _log_path()
    with (
        log.open("ab") as output,
        subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True) as process,  # noqa: S603 -- ourselves
    ):
        try:
            deadline_s = time.monotonic() + _START_S
            while _fetch(f"{url}/health", None) is None:
                if process.poll() is not None or time.monotonic() > deadline_s:
                    _fail(f"The gateway did not start; {log} says why.")
                time.sleep(0.05)
            yield url
        finally:
            process.terminate()


def _log_path() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    folder = Path(state) / "cachegate"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder / "gateway.log"


def _fetch(url: str, key: str | None) -> bytes | None:
    """Return what the gateway answers, or None when nothing does. A proxy is no way to one's own machine."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers={GATEWAY_KEY_HEADER: key} if key else {})  # noqa: S310 -- our own http URL
    try:
        with opener.open(request, timeout=5) as response:
            return bytes(response.read())
    except (urllib.error.URLError, OSError):
        return None


def _ask_supervisor(config: Path | None, listen: str | None, question: str) -> Reply:
    """Ask the supervisor of the gateway at an address; where one is named, the configuration need not be in order."""
    try:
        address = _load(config, None).config.address if listen is None else parse_listen(listen)
    except ValueError as error:
        _fail(f"--listen {error}; {listen!r} is not.")
    directory = location(address, os.environ)
    try:
        return ask(directory, question)
    except NobodyThere as error:
        url = _url(*address)
        _fail(
            f"No supervised gateway answers for {url} ({directory}: {error}). Start one with `cachegate serve`; where "
            "`listen` was changed meanwhile, name the address that it serves: --listen host:port."
        )


def _load(path: Path | None, listen: str | None) -> Loaded:
    """Load the configuration, print its warnings, and end the program when it is wrong."""
    try:
        loaded = load(find(path, os.environ), os.environ, {} if listen is None else {"listen": listen})
    except ConfigError as error:
        _fail(str(error))
    for warning in loaded.warnings:
        print(f"Warning: {warning}", file=sys.stderr)
    return loaded


def _key(config: Config) -> str | None:
    return config.clients[0].key.get_secret_value() if config.clients else None


def _greeting(loaded: Loaded, url: str) -> list[str]:
    return [
        f"Cachegate listens on {url}  ({loaded.source}; Ctrl-C to stop)",
        *_summary(loaded.config),
        f"  Claude Code  cachegate run claude    or ANTHROPIC_BASE_URL={url} CLAUDE_CODE_GATEWAY_HINT_HEADERS=1 claude",
        f"  Codex        cachegate run codex     or codex -c 'openai_base_url=\"{url}/v1\"'",
        f"  SDKs         base_url={url} (anthropic)   base_url={url}/v1 (openai)",
    ]


def _summary(config: Config) -> list[str]:
    guard = config.cache_guard
    policy = (
        f"stops after {guard.limit} large requests in a row without cache reuse ({guard.large_tokens:,} tokens)"
        if guard.enabled
        else "off"
    )
    providers = ", ".join(f"{name} ({_credentials(row)})" for name, row in config.providers.items())
    return [f"  providers    {providers}", f"  cache guard  {policy}"]


def _credentials(row: ProviderConfig) -> str:
    match row:
        case SyntheticProviderConfig():
            return "embedded, no account"
        case ClaudeCliProviderConfig():
            return "configured key" if row.api_key is not None else "Claude account"
        case CopilotProviderConfig():
            return "GitHub account" if row.own_provider is None else f"key for {row.own_provider.base_url}"
        case HttpProviderConfig():
            own = "the client's own key" if row.api_key is None else "configured key"
            return f"{own}, self-hosted" if row.self_hosted else own


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _fail(words: str) -> NoReturn:
    print(words, file=sys.stderr)
    raise typer.Exit(1)
