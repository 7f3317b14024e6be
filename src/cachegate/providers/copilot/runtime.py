"""Copilot's runtime as a child process, through GitHub's official SDK.

The runtime repeats failed calls, compacts long conversations and lets a model go on at its limit, all without asking.
So every model call passes a gate of ours, which lets one through for each request of a caller and no other.
"""

import asyncio
import logging
import shutil
import tempfile
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from copilot import CopilotClient, CopilotSession, RuntimeConnection
from copilot._jsonrpc import JsonRpcError, ProcessExitedError
from copilot.copilot_request_handler import (
    CopilotRequestContext,
    CopilotRequestHandler,
    CopilotWebSocketHandler,
)
from copilot.generated.rpc import SendMessagesRequest
from copilot.session import ModelCapabilitiesOverride, ModelSupportsOverride, PermissionHandler, ProviderConfig
from copilot.tools import Tool, ToolBinaryResult, ToolInvocation, ToolResult

from cachegate.errors import UpstreamError
from cachegate.providers.child_environment import kept
from cachegate.providers.copilot.native import EXITED, Listener, Opening, Permit
from cachegate.providers.copilot.session_files import STATE_PATH, WORKING_PATH, SessionFiles
from cachegate.wire.copilot.history import Returned, Said
from cachegate.wire.copilot.seed import attached
from cachegate.wire.copilot.setup import DeclaredTool
from cachegate.wire.hub import Json

# The SDK logs what the runtime says; that may be what was said to it. What failed is told to the caller instead.
logging.getLogger("copilot").addHandler(logging.NullHandler())
logging.getLogger("copilot").propagate = False

START_S = 60.0
"""For the runtime to start, and for any answer of it that needs no model."""
ABORT_S = 0.9
"""A caller who leaves must not go on paying: what is not interrupted by then is ended with its process."""
_NAME = "copilot"
_CONVERSATION = "conversation-agent"
"""The kind of model calls that a turn consists of; others are for the runtime's own ends."""
_FAILURES = (JsonRpcError, ProcessExitedError, OSError, RuntimeError, TimeoutError)


@dataclass(frozen=True, slots=True)
class OwnProvider:
    """A provider that the runtime asks with a key of the person's own, instead of GitHub."""

    kind: str
    """openai, azure or anthropic."""
    base_url: str
    api_key: str | None = field(default=None, repr=False)
    wire_api: str | None = None
    """completions or responses, for openai and azure."""
    prompt_tokens_max: int | None = None
    """The model's limit; the runtime would compact beyond it, which is told to the caller as a full context."""


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """How the runtime is started."""

    cli_path: str | None = None
    """None finds `copilot` on the PATH."""
    github_token: str | None = field(default=None, repr=False)
    """None takes the account that is signed in on this machine."""
    own_provider: OwnProvider | None = None
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)


class SdkRuntime:
    """See `native.Runtime`."""

    def __init__(self, settings: RuntimeSettings) -> None:
        self._settings = settings
        self._gate = _Gate()
        self._client: CopilotClient | None = None
        self._home: tempfile.TemporaryDirectory[str] | None = None
        self._starting = asyncio.Lock()

    async def open(self, opening: Opening, listener: Listener) -> "SdkSession":
        """See `native.Runtime`."""
        client = await self._started()
        session = SdkSession(self, opening, listener, self._gate)
        try:
            async with _answering("could not begin a session"):
                await session.begin(client, self._settings)
        except UpstreamError:
            await self.runs(client)
            raise
        return session

    async def close(self) -> None:
        """See `native.Runtime`."""
        client, self._client = self._client, None
        home, self._home = self._home, None
        if client is not None:
            await client.force_stop()
        if home is not None:
            home.cleanup()

    async def _started(self) -> CopilotClient:
        async with self._starting:
            if self._client is None:
                program = _program(self._settings.cli_path)
                self._home = tempfile.TemporaryDirectory(prefix="cachegate-copilot-")
                self._client = self._new_client(program, self._home.name)
                try:
                    async with _answering("did not start"):
                        await self._client.start()
                except (UpstreamError, asyncio.CancelledError):
                    await self.close()
                    raise
            return self._client

    async def runs(self, client: CopilotClient) -> bool:
        """Whether this runtime is still there; if not, the next session starts a new one."""
        if self._client is not client:
            return False
        try:
            async with asyncio.timeout(ABORT_S):
                await client.ping()
        except _FAILURES:
            if self._client is client:
                await self.close()
            return False
        return True

    def _new_client(self, program: str, home: str) -> CopilotClient:
        settings = self._settings
        signed_in = settings.github_token is None and settings.own_provider is None
        return CopilotClient(
            connection=RuntimeConnection.for_stdio(path=program),
            mode="empty",
            base_directory=None if signed_in else home,
            working_directory=home,
            log_level="none",
            github_token=settings.github_token,
            use_logged_in_user=signed_in,
            request_handler=self._gate,
            session_fs={
                "initial_working_directory": WORKING_PATH,
                "session_state_path": STATE_PATH,
                "conventions": "posix",
            },
            env=_environment(settings, str(Path.home()) if signed_in else home),
        )


class SdkSession:
    """See `native.NativeSession`."""

    def __init__(self, runtime: SdkRuntime, opening: Opening, listener: Listener, gate: "_Gate") -> None:
        self._runtime = runtime
        self._opening = opening
        self._listener = listener
        self._gate = gate
        self._files = SessionFiles(opening.events)
        self._results: dict[str, asyncio.Future[Returned]] = {}
        self._runs: set[asyncio.Task[None]] = set()
        self._client: CopilotClient | None = None
        self._session: CopilotSession | None = None

    async def begin(self, client: CopilotClient, settings: RuntimeSettings) -> None:
        """Create or resume the session in the runtime."""
        opening, setup = self._opening, self._opening.setup
        resumed = bool(opening.events)
        create = client.resume_session if resumed else client.create_session
        session = await create(
            session_id=opening.session_id,
            on_permission_request=PermissionHandler.approve_all,
            model=setup.model,
            reasoning_effort=setup.effort,  # type: ignore[arg-type] # a Literal there; efforts are rows of our table
            tools=[self._tool(tool) for tool in setup.tools],
            available_tools=["custom:*"],
            system_message={"mode": "replace", "content": setup.instructions},
            provider=_provider(settings.own_provider),
            capi={"enable_web_socket_responses": False},
            model_capabilities=_SEES if settings.own_provider is not None else None,
            streaming=True,
            infinite_sessions={"enabled": False},
            large_output={"enabled": False},
            create_session_fs_handler=lambda _: self._files,
        )
        self._client = client
        session.on(lambda event: self._listener(event.to_dict()))
        self._session = session

    def allow(self, permit: Permit) -> None:
        """See `native.NativeSession`."""
        self._gate.allow(self._opening.session_id, permit)

    async def alive(self) -> bool:
        """See `native.NativeSession`."""
        return self._client is not None and await self._runtime.runs(self._client)

    def give(self, returned: Returned) -> None:
        """See `native.NativeSession`."""
        waiting = self._waiting(returned.call_id)
        if not waiting.done():
            waiting.set_result(returned)

    async def say(self, said: tuple[Said, ...], schema: Json | None, *, steering: bool) -> None:
        """See `native.NativeSession`. The runtime answers when all is over, and fails when it goes before."""
        request: dict[str, object] = {
            "messages": [{"prompt": each.text, "attachments": attached(each.attachments)} for each in said],
            "wait": not steering,
        }
        if steering:
            request["mode"] = "immediate"
        if schema is not None and not steering:
            form = {"name": "response", "strict": True, "schema": schema}
            request["responseFormat"] = {"type": "json_schema", "jsonSchema": form}
        run = self._begun.rpc.send_messages(SendMessagesRequest.from_dict(request))
        if steering:
            async with _answering("did not take the message"):
                await run
        else:
            task = asyncio.ensure_future(self._watched(run))
            self._runs.add(task)
            task.add_done_callback(self._runs.discard)

    async def set_effort(self, effort: str) -> None:
        """See `native.NativeSession`."""
        async with _answering("did not change the effort"):
            await self._begun.set_model(self._opening.setup.model, reasoning_effort=effort)

    async def abort(self) -> None:
        """See `native.NativeSession`."""
        self._gate.close(self._opening.session_id)
        try:
            async with asyncio.timeout(ABORT_S):
                await self._begun.abort()
        except _FAILURES:
            await self._runtime.close()

    async def close(self) -> tuple[bytes, ...]:
        """See `native.NativeSession`."""
        self._gate.close(self._opening.session_id)
        if self._session is not None:
            try:
                async with asyncio.timeout(START_S):
                    await self._session.disconnect()
            except _FAILURES:
                await self.alive()
        for run in self._runs:
            run.cancel()
        return self._files.events()

    @property
    def _begun(self) -> CopilotSession:
        if self._session is None:
            raise UpstreamError("The session of Copilot's runtime was never begun.")
        return self._session

    def _waiting(self, call_id: str) -> "asyncio.Future[Returned]":
        if call_id not in self._results:
            self._results[call_id] = asyncio.get_running_loop().create_future()
        return self._results[call_id]

    async def _watched(self, run: Coroutine[object, object, object]) -> None:
        try:
            await run
        except _FAILURES:
            self._listener(EXITED)
            await self.alive()

    def _tool(self, tool: DeclaredTool) -> Tool:
        return Tool(
            name=tool.name,
            description=tool.description,
            parameters=dict(tool.parameters),
            handler=self._called,
            overrides_built_in_tool=True,
            skip_permission=True,
            defer="never",
        )

    async def _called(self, invocation: ToolInvocation) -> ToolResult:
        """Wait for the caller's next request, which brings the result."""
        returned = await self._waiting(invocation.tool_call_id)
        self._results.pop(invocation.tool_call_id, None)
        attached_files = [ToolBinaryResult(each.data, each.media_type, each.kind) for each in returned.attachments]
        return ToolResult(
            text_result_for_llm=returned.text,
            result_type="failure" if returned.is_error else "success",
            error=returned.text if returned.is_error else None,
            binary_results_for_llm=attached_files or None,
        )


class _Gate(CopilotRequestHandler):
    """Lets one model call through for each permit."""

    def __init__(self) -> None:
        self._permits: dict[str, Permit] = {}

    def allow(self, session_id: str, permit: Permit) -> None:
        """Permit one model call of a session."""
        self._permits[session_id] = permit

    def close(self, session_id: str) -> None:
        """Permit none."""
        self._permits.pop(session_id, None)

    async def send_request(self, request: httpx.Request, ctx: CopilotRequestContext) -> httpx.Response:
        """Pass a request on, unless it is a model call that nobody asked for."""
        if ctx.session_id is None:
            return await super().send_request(request, ctx)  # no model call: the list of models, say
        permit = self._permits.pop(ctx.session_id, None) if ctx.interaction_type in {None, _CONVERSATION} else None
        if permit is None:
            return httpx.Response(400, json=_REFUSED, request=request)
        permit.on_sent()
        response = await super().send_request(request, ctx)
        if (wait := response.headers.get("retry-after")) is not None:
            permit.on_retry_after(wait)
        return response

    async def open_websocket(self, ctx: CopilotRequestContext) -> CopilotWebSocketHandler:
        """Refuse: calls over a lasting connection could not be counted."""
        del ctx
        raise ConnectionRefusedError("Model calls over WebSockets are not permitted here.")


_SEES = ModelCapabilitiesOverride(supports=ModelSupportsOverride(vision=True))
"""The runtime takes a model that it does not know for blind, and drops the pictures that tools return."""
_REFUSED = {"error": {"type": "invalid_request_error", "message": "Cachegate permits one model call for each request."}}


@asynccontextmanager
async def _answering(what: str) -> AsyncGenerator[None, None]:
    """Turn the SDK's failures into ours."""
    try:
        async with asyncio.timeout(START_S):
            yield
    except _FAILURES as error:
        words = (
            f"Copilot's runtime {what} ({type(error).__name__}). The request was not repeated; please send it again."
        )
        raise UpstreamError(words) from error


def _program(configured: str | None) -> str:
    """Return the runtime's program. Raises UpstreamError without one: the SDK would fetch it from the network."""
    wanted = configured or _NAME
    found = shutil.which(str(Path(wanted).expanduser()))
    if found is None:
        where = "on the PATH" if configured is None else f"at {configured!r}"
        raise UpstreamError(
            f"Copilot's program was not found {where}. Install it (npm install -g @github/copilot), or name it as "
            "cliPath."
        )
    return found


def _provider(own: OwnProvider | None) -> ProviderConfig | None:
    if own is None:
        return None
    provider = ProviderConfig(type=own.kind, base_url=own.base_url)  # type: ignore[typeddict-item] # checked by the config
    if own.api_key is not None:
        provider["api_key"] = own.api_key
    if own.wire_api is not None:
        provider["wire_api"] = own.wire_api  # type: ignore[typeddict-item] # as above
    if own.prompt_tokens_max is not None:
        provider["max_prompt_tokens"] = own.prompt_tokens_max
    return provider


def _environment(settings: RuntimeSettings, home: str) -> dict[str, str]:
    environment = kept(settings.environ)
    environment["HOME"] = home
    if settings.own_provider is not None:
        # Without these it would ask GitHub for an account; each session names its own model and provider.
        environment |= {
            "COPILOT_OFFLINE": "true",
            "COPILOT_MODEL": "default",
            "COPILOT_PROVIDER_TYPE": settings.own_provider.kind,
            "COPILOT_PROVIDER_BASE_URL": settings.own_provider.base_url,
        }
    return environment
