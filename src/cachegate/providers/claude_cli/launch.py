"""How Claude Code's program is started for one session: with nothing of the person's own but the account.

Whatever would ask the model on its own account is switched off here: titles, repeated calls, summaries. Keys travel in
the environment and prompts in files, because everybody on the machine can read a command line.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from yarl import URL

from cachegate.providers.address import is_loopback
from cachegate.providers.child_environment import kept
from cachegate.providers.claude_cli.home import SessionHome
from cachegate.wire.body import encode
from cachegate.wire.claude_cli.frames import PERMITTED, SERVERS
from cachegate.wire.hub import Json

_QUIET = (
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING",
    "CLAUDE_CODE_DISABLE_TERMINAL_TITLE",
)  # fmt: skip
"""Nothing but the model calls leaves the machine."""
_BARE_PROMPT = (
    "CLAUDE_CODE_DISABLE_ATTACHMENTS", "CLAUDE_CODE_DISABLE_CLAUDE_MDS", "CLAUDE_CODE_DISABLE_AUTO_MEMORY",
    "CLAUDE_AGENT_SDK_DISABLE_BUILTIN_AGENTS", "CLAUDE_AGENT_SDK_MCP_NO_PREFIX",
)  # fmt: skip
"""The prompt is the caller's, and so are the names of the tools."""
_ONE_CALL = (
    "DISABLE_AUTO_COMPACT", "DISABLE_COMPACT", "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK",
    "CLAUDE_CODE_DISABLE_REFUSAL_FALLBACK", "CLAUDE_CODE_DISABLE_REFUSAL_RETRY",
)  # fmt: skip
"""A turn asks the model once."""
_FAST = ("CLAUDE_CODE_SKIP_FAST_MODE_ORG_CHECK", "CLAUDE_CODE_SKIP_FAST_MODE_NETWORK_ERRORS")
"""Whether the account may use fast mode is the provider's answer to give; asking first would be a call to its host."""
_LIMITS = {
    "CLAUDE_CODE_MAX_RETRIES": "0",
    "MCP_TOOL_TIMEOUT": "86400000",
    "CLAUDE_CODE_MCP_AUTO_BACKGROUND_MS": "0",
    "CLAUDE_CODE_MAX_MCP_DESCRIPTION_LENGTH": "1000000",
    "ENABLE_TOOL_SEARCH": "false",
    # Without it the program itself would refuse a long conversation, some 20,000 tokens before the model's limit.
    "CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE": "100000000",
}
_NO_ATTRIBUTION: Json = {"attribution": {"commit": "", "pr": ""}}


@dataclass(frozen=True, slots=True)
class Account:
    """Whose model calls they are."""

    api_key: str | None = field(default=None, repr=False)
    """None is the login mode: a subscription, with a token or with the sign-in of this machine."""
    oauth_token: str | None = field(default=None, repr=False)
    """What `claude setup-token` prints."""
    base_url: str | None = None
    use_login: bool = False
    """Without a token, lend the session the sign-in of this machine; see `SessionHome.lend_login`."""


@dataclass(frozen=True, slots=True)
class Resume:
    """A transcript that stands in the session's home, to be gone on with."""

    session_id: str
    at: str | None = None
    """Id of the assistant's line to go back to; None takes all of it."""
    goes_on: bool = False
    """The transcript ends in the user's role: the model answers it without another word."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How the model is to answer. All but `extra_body` can be changed while the process lives, too."""

    thinking_tokens: int | None = None
    """0 switches thinking off; None leaves the program's own setting."""
    effort: str | None = None
    fast: bool = False
    extra_body: Json | None = field(default=None, repr=False)
    """Merged into the body of every model call."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A program to start."""

    program: str
    arguments: tuple[str, ...]
    environ: Mapping[str, str] = field(repr=False)
    folder: Path


def launch(  # noqa: PLR0917 -- six, as the laws allow
    program: str,
    account: Account,
    home: SessionHome,
    model: str,
    resume: Resume | None,
    manner: Manner = Manner(),
) -> Launch:
    """Return how to start `program` in `home`, where the system prompt and the transcript are already written.

    Raises UpstreamError where a sign-in is to be lent and nobody is signed in.
    """
    with_key = account.api_key is not None
    if not with_key and account.oauth_token is None and account.use_login:
        home.lend_login()
    settings = {**_NO_ATTRIBUTION, "fastMode": True} if manner.fast else _NO_ATTRIBUTION
    arguments = [
        *("--output-format", "stream-json", "--input-format", "stream-json", "--verbose"),
        *("--include-partial-messages", "--max-turns", "1", "--model", model),
        *("--tools", "", "--strict-mcp-config", "--mcp-config", encode(SERVERS).decode()),
        *("--allowedTools", PERMITTED, "--setting-sources=", "--settings", encode(settings).decode()),
        *("--system-prompt-file", str(home.system_path), "--system-prompt-snapshot", "off"),
    ]
    if with_key:
        arguments.append("--bare")
    if manner.thinking_tokens is not None:
        arguments += ["--max-thinking-tokens", str(manner.thinking_tokens)]
    if manner.effort is not None:
        arguments += ["--effort", manner.effort]
    if resume is not None:
        arguments += ["--resume", resume.session_id]
        if resume.at is not None:
            arguments += ["--resume-session-at", resume.at]
    environ = _environ(account, home)
    environ["CLAUDE_CODE_RESUME_INTERRUPTED_TURN"] = "1" if resume is not None and resume.goes_on else "0"
    if manner.extra_body:
        environ["CLAUDE_CODE_EXTRA_BODY"] = encode(manner.extra_body).decode()
    return Launch(program, tuple(arguments), environ, home.working_path)


def _environ(account: Account, home: SessionHome) -> dict[str, str]:
    environ = kept(os.environ)
    environ |= dict.fromkeys((*_QUIET, *_BARE_PROMPT, *_ONE_CALL, *_FAST), "1") | _LIMITS
    environ |= {
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        "HOME": str(home.person),
        "CLAUDE_CONFIG_DIR": str(home.config),
        "TMPDIR": str(home.temporary),
        "CLAUDE_CODE_TMPDIR": str(home.temporary),
    }
    if account.base_url is not None:
        environ["ANTHROPIC_BASE_URL"] = account.base_url
        host = URL(account.base_url).host or ""
        if is_loopback(host):  # the program would ask the proxy for this machine too
            without = (environ.get("NO_PROXY"), environ.get("no_proxy"), host)
            environ["NO_PROXY"] = environ["no_proxy"] = ",".join(name for name in without if name)
    if account.api_key is not None:
        environ["ANTHROPIC_API_KEY"] = account.api_key
        # A line before the system prompt that depends on the first message: what is cached would be so for one chat.
        environ["CLAUDE_CODE_ATTRIBUTION_HEADER"] = "0"
    elif account.oauth_token is not None:
        environ["CLAUDE_CODE_OAUTH_TOKEN"] = account.oauth_token
    return environ
