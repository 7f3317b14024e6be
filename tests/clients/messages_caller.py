"""A client of the Messages protocol that keeps its conversation, for tests that look at every byte of it."""

import json

import aiohttp

from clients.provider_replies import JsonObject

HEADERS = {"user-agent": "claude-cli/2.1.332", "x-claude-code-session-id": "0f0e0d0c-0b0a-4908-8706-050403020100"}
_SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [{"name": name, "description": f"The {name} tool", "input_schema": _SCHEMA} for name in ("Read", "bash")]
SYSTEM = "You are the caller's agent."


class Caller:
    """A client that speaks Messages, and keeps its conversation."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url
        self.headers = dict(HEADERS)
        self.messages: list[JsonObject] = []

    def say(self, *content: JsonObject | str) -> None:
        blocks = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
        self.messages.append({"role": "user", "content": blocks})

    async def ask(self, *, stream: bool = False, keep: bool = True, **more: object) -> "Told":
        body = {
            "model": "claude-sonnet-4-5",
            "max_tokens": 1_000,
            "system": SYSTEM,
            "tools": TOOLS,
            "messages": self.messages,
            "stream": stream,
            **more,
        }
        async with self._http.post(f"{self._url}/v1/messages", json=body, headers=self.headers) as response:
            text = await response.text()
            told = Told(response.status, response.headers.get("retry-after", ""), text)
        assert not keep or told.status == 200, told.text
        if keep:
            self.messages.append({"role": "assistant", "content": told.content})
        return told

    async def leave_in_the_midst(self) -> None:
        """Ask, read the first text and go."""
        body = {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": self.messages, "stream": True}
        body |= {"system": SYSTEM, "tools": TOOLS}
        async with self._http.post(f"{self._url}/v1/messages", json=body, headers=self.headers) as response:
            async for line in response.content:
                if b"text_delta" in line:
                    return


class Told:
    """What a caller was told."""

    def __init__(self, status: int, retry_after: str, text: str) -> None:
        self.status = status
        self.retry_after = retry_after
        self.text = text

    @property
    def events(self) -> list[JsonObject]:
        return [json.loads(line.removeprefix("data: ")) for line in self.text.splitlines() if line.startswith("data: ")]

    @property
    def content(self) -> list[JsonObject]:
        if not self.text.startswith("event:"):
            content: list[JsonObject] = json.loads(self.text)["content"]
            return content
        blocks: list[JsonObject] = []
        for event in self.events:
            match event["type"]:
                case "content_block_start":
                    blocks.append({**event["content_block"], "pieces": []})
                case "content_block_delta":
                    blocks[-1]["pieces"].append(event["delta"])
        return [_whole(block) for block in blocks]

    @property
    def stop_reason(self) -> str:
        if not self.text.startswith("event:"):
            return str(json.loads(self.text)["stop_reason"])
        return next(str(e["delta"]["stop_reason"]) for e in self.events if e["type"] == "message_delta")


def _whole(block: JsonObject) -> JsonObject:
    pieces = block.pop("pieces")
    match block["type"]:
        case "text":
            block["text"] = "".join(piece["text"] for piece in pieces)
        case "thinking":
            block["thinking"] = "".join(piece.get("thinking", "") for piece in pieces)
        case "tool_use":
            block["input"] = json.loads("".join(piece["partial_json"] for piece in pieces))
    return block


def result(call_id: str, text: str, *, failed: bool = False) -> JsonObject:
    return {"type": "tool_result", "tool_use_id": call_id, "content": text, **({"is_error": True} if failed else {})}
