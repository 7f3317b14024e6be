"""`cachegate demo`: see the guard work in seconds, without an account.

The gateway runs in this process with its embedded provider; the official SDKs speak to it as they would to anybody.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from cachegate.assembly import assemble, dismantle
from cachegate.config import Config
from cachegate.observe.diagnostics import Diagnostics
from cachegate.provider_configs import SyntheticProviderConfig
from cachegate.server.app import App

MODEL = "synthetic/cold"
"""A model whose cache is never reused."""
_TEXT = "All work and no cache makes a long night. "
_LARGE_BYTES = 400_000
"""About 100,000 tokens."""
_ALLOWED_BEFORE_STOP = 2
_STOP_STATUS = 400


class DemoFailed(Exception):  # noqa: N818 -- it reads as what it is
    """The guard did not do what it promises; the message says where."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What an SDK heard: an answer's text, or the status and words of an error."""

    text: str
    status: int = 200


Ask = Callable[[str], Awaitable[Heard]]


async def demo(say: Callable[[str], None]) -> None:
    """Run the demonstration over both protocols. Raises DemoFailed at the first step that is not as promised."""
    diagnostics = Diagnostics()
    config = Config(listen="127.0.0.1:0", providers={"synthetic": SyntheticProviderConfig(kind="synthetic")})
    app = App(config, assemble(config, (diagnostics,)), diagnostics)
    host, port = await app.open()
    try:
        for name, sdk in (("anthropic SDK, Messages", _anthropic), ("openai SDK, Responses, streamed", _openai)):
            say(f"{name}, model {MODEL}:")
            async with sdk(f"http://{host}:{port}") as ask:
                await _steps(ask, say, lambda: _calls(diagnostics))
    finally:
        await app.close()
        await dismantle(app.gateway)


async def _steps(ask: Ask, say: Callable[[str], None], calls: Callable[[], int]) -> None:
    """Two cold large requests run, the third stops, a retry stays stopped, half the input recovers."""
    large = _TEXT * (_LARGE_BYTES // len(_TEXT))
    before = calls()
    for number in range(1, _ALLOWED_BEFORE_STOP + 1):
        heard = await ask(large)
        _check(heard.status == 200, f"request {number} should have run, but got {heard.status}: {heard.text}")  # noqa: PLR2004 -- HTTP
        say(f"  request {number}: ran. {heard.text}")
    for name in ("request 3", "the same again"):
        heard = await ask(large)
        _check(heard.status == _STOP_STATUS, f"{name} should have been stopped, but got {heard.status}")
        _check("5 minutes" in heard.text, f"{name} was stopped without our words: {heard.text}")
        say(f"  {name}: stopped. {heard.text}")
    reached = calls() - before
    _check(reached == _ALLOWED_BEFORE_STOP, f"the provider saw {reached} requests instead of {_ALLOWED_BEFORE_STOP}")
    heard = await ask(large[: len(large) // 2 - len(_TEXT)])
    _check(heard.status == 200, f"half the input should have run, but got {heard.status}: {heard.text}")  # noqa: PLR2004 -- HTTP
    say(f"  half the input: ran. {heard.text}")


def _check(holds: bool, words: str) -> None:  # noqa: FBT001 -- as an assert
    if not holds:
        raise DemoFailed(words)


def _calls(diagnostics: Diagnostics) -> int:
    """Return how many requests reached the provider."""
    return sum(1 for record in diagnostics.recent() if record["outcome"] != "blocked")


@asynccontextmanager
async def _anthropic(url: str) -> AsyncIterator[Ask]:
    import anthropic  # noqa: PLC0415 -- the SDKs are an optional extra

    async with anthropic.AsyncAnthropic(base_url=url, api_key="demo") as client:

        async def ask(text: str) -> Heard:
            try:
                message = await client.messages.create(
                    model=MODEL, max_tokens=100, messages=[{"role": "user", "content": text}]
                )
            except anthropic.APIStatusError as error:
                return Heard(_error_words(error.body), error.status_code)
            return Heard("".join(block.text for block in message.content if block.type == "text"))

        yield ask


@asynccontextmanager
async def _openai(url: str) -> AsyncIterator[Ask]:
    import openai  # noqa: PLC0415 -- as above

    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="demo") as client:

        async def ask(text: str) -> Heard:
            try:
                stream = await client.responses.create(
                    model=MODEL, input=text, stream=True, prompt_cache_key="demo-openai"
                )
                return Heard(
                    "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])
                )
            except openai.APIStatusError as error:
                return Heard(_error_words(error.body), error.status_code)

        yield ask


def _error_words(body: object) -> str:
    """Return the message of an error body, with or without the envelope that an SDK may have taken off."""
    inner = body.get("error", body) if isinstance(body, dict) else body
    return str(inner.get("message", inner)) if isinstance(inner, dict) else str(inner)


def run(say: Callable[[str], None]) -> None:
    """Run the demonstration from a program without an event loop."""
    asyncio.run(demo(say))
