"""A program that speaks the lines of Claude Code's, and does what it is told.

Its first argument says how it begins, and each message of the user what it does then.
"""

import itertools
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_NUMBERS = itertools.count(1)


def tell(fields: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def acknowledge(request: dict[str, Any], error: str = "") -> None:
    outcome = {"subtype": "error", "error": error} if error else {"subtype": "success", "response": request["request"]}
    tell({"type": "control_response", "response": {"request_id": request["request_id"], **outcome}})


def ask(request: dict[str, Any]) -> str:
    control_id = f"c{next(_NUMBERS)}"
    tell({"type": "control_request", "request_id": control_id, "request": request})
    return control_id


def ask_tools(method: str, **more: Any) -> str:
    return ask({"subtype": "mcp_message", "server_name": "gw", "message": {"jsonrpc": "2.0", "method": method, **more}})


def call(call_id: str) -> str:
    meta = {"claudecode/toolUseId": call_id}
    return ask_tools("tools/call", id=7, params={"name": "Read", "arguments": {}, "_meta": meta})


def answers(lines: Iterator[dict[str, Any]], count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        line = next(lines)
        if line["type"] == "control_request":
            acknowledge(line)
        else:
            found.append(line["response"])
    return found


def results(answered: list[Any]) -> list[Any]:
    return [answer["response"]["mcp_response"]["result"] for answer in answered]


def act(message: dict[str, Any], lines: Iterator[dict[str, Any]]) -> None:  # noqa: C901, PLR0912 -- a row for each
    blocks = message["message"]["content"]
    what, *words = blocks[0]["text"].split() if blocks else ["say-nothing"]
    end: dict[str, Any] = {"type": "result"}
    match what:
        case "repeat":
            end["said"] = message
        case "say-nothing":
            end["blocks"] = blocks
        case "count":
            for number in range(int(words[0])):
                tell({"type": "counted", "number": number})
        case "grow":
            end["text"] = "x" * int(words[0])
        case "garble":
            sys.stdout.write("a warning\n\n[1]\n{\n")
        case "complain":
            sys.stderr.write("x" * int(words[0]))
        case "call":  # one after the other
            end["results"] = [results(answers(lines, 1) if call(word) else [])[0] for word in words]
        case "call-all":  # then the answers come in any order
            asked = {call(word): word for word in words}
            answered = answers(lines, len(words))
            given = zip(answered, results(answered), strict=True)
            end["results"] = {asked[answer["request_id"]]: result for answer, result in given}
        case "withdraw":
            tell({"type": "control_cancel_request", "request_id": call(words[0])})
        case "ask-tools":
            ask_tools("initialize", id=0, params={"protocolVersion": "1"})
            ask_tools("notifications/initialized")
            ask_tools("tools/list", id=1)
            end["answers"] = [answer["response"]["mcp_response"] for answer in answers(lines, 3)]
        case "ask-strangely":
            ask({"subtype": "can_use_tool"})
            end["answers"] = answers(lines, 1)
        case "exit":
            sys.exit(3)
        case "be-deaf":
            stay(signal.SIGTERM if "stubborn" in words else signal.SIGUSR1)
    tell(end)


def stay(unheard: int) -> None:
    """Read nothing more, and never go by oneself."""
    signal.signal(unheard, signal.SIG_IGN)
    tell({"type": "deaf"})
    while True:
        signal.pause()


def main(beginning: str) -> None:
    if beginning == "exit":
        sys.exit(3)
    if beginning.startswith("deaf-to:"):
        Path(beginning.removeprefix("deaf-to:")).write_text(str(os.getpid()), "ascii")
        stay(signal.SIGUSR1)
    lines = (json.loads(line) for line in sys.stdin.buffer)
    for line in lines:
        match line["type"], line.get("request", {}).get("subtype"):
            case "control_request", "initialize" if beginning == "refuse":
                acknowledge(line, "not today")
            case "control_request", "be_refused":
                acknowledge(line, "no such thing")
            case "control_request", "end":
                sys.exit(3)
            case "control_request", _:
                acknowledge(line)
            case "user", _:
                act(line, lines)
            case _:
                tell({"type": "astray"})


if __name__ == "__main__":
    main(sys.argv[1])
