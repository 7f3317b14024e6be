"""Each example does what it shows, as a program of its own, against a running gateway."""

import asyncio
import sys
from pathlib import Path

import pytest

from running_gateway import RunningGateway

EXAMPLES = Path(__file__).parent.parent / "examples"
SHOWN: dict[str, tuple[str, ...]] = {
    "chat.py": ("model: This is a synthetic answer.", "tokens so far:"),
    "stream.py": ("This is a synthetic answer.", "read from the cache: 0"),
    "tools.py": ("says  This is a synthetic answer.",),
    "interrupt.py": ("heard: ", "interrupted, and kept: ", "messages in the history: 2"),
    "recovery.py": (
        "turn 2: ",
        "stopped after 2 cold requests (measured). Wait 300 s, or compact.",
        "the context is full: False",
        "compacted to: This is a synthetic summary.",
        "answer: This is a synthetic answer.",
    ),
    "hosted.py": ("heard: This is", "threads: example (synthetic/cache)", "answer: This is a synthetic answer."),
}


def test_every_example_is_run() -> None:
    assert sorted(SHOWN) == sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", SHOWN)
async def test_it_shows_what_it_promises(gateway: RunningGateway, name: str) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", str(EXAMPLES / name), gateway.url,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(program.communicate(), 60)
    assert (program.returncode, err.decode()) == (0, "")
    text = out.decode()
    assert [words for words in SHOWN[name] if words not in text] == []
