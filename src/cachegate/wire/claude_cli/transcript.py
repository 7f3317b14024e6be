"""Writes and reads a session's transcript as the CLI keeps it: a line of JSON for each message, chained by ids.

Of an old transcript the lines of the turns that are still the same are taken over as they stand: only they hold the
thoughts with their signatures, and the reminders that the CLI put in. The rest is written as the CLI would, in the few
fields that it needs. Ids are digests of their place, so the same history makes the same lines.
"""

from collections.abc import Iterator, Sequence

from blake3 import blake3

from cachegate.wire.body import decode, encode
from cachegate.wire.claude_cli.prompt import Turn, results_of
from cachegate.wire.hub import Json
from cachegate.wire.usage_readings import Fields, fields, items

_AT = "2020-01-01T00:00:00.000Z"
"""When it was: any fixed moment in the past. The model is not told."""


def kept_lines(lines: Sequence[bytes], kept: int) -> tuple[tuple[bytes, ...], int]:
    """Return the lines of the first `kept` turns, and how many turns they are: a killed process has not written all.

    A turn is a run of lines of one role: the CLI writes each block of an answer, and each result, on a line of its own.
    """
    turns, role, end = 0, "", 0
    for number, line in enumerate(lines):
        said = _role(fields(decode(line)))
        if not said:
            continue
        if said != role:
            if turns == kept:
                break
            turns, role = turns + 1, said
        end = number + 1
    return tuple(lines[:end]), turns


def transcript(
    session_id: str, folder: str, model: str, native: Sequence[bytes], past: Sequence[Turn]
) -> tuple[bytes, ...]:
    """Return the lines of a new session: those of the old one, then `past`. `folder` is its working directory.

    A turn that ends with results gets an empty one of the user behind it: with that the CLI goes on by itself, and the
    prompt is the same as without.
    """
    # Only what has an id is chained. The rest are notes of the old session, and one of them says where it was left.
    chained = [row for row in (fields(decode(line)) for line in native) if "uuid" in row]
    lines = [encode({**row, "sessionId": session_id, "cwd": folder}) for row in chained]
    parent = chained[-1]["uuid"] if chained else None
    for number, (role, content) in enumerate(_messages(past), start=len(lines)):
        message: Json = {"role": role, "content": content}
        if role == "assistant":
            message = _answer(f"msg_{_digest(session_id, number)[:24]}", model, content)
        row_id = _row_id(session_id, number)
        lines.append(
            encode(
                {
                    "parentUuid": parent,
                    "isSidechain": False,
                    "type": role,
                    "message": message,
                    "uuid": row_id,
                    "timestamp": _AT,
                    "sessionId": session_id,
                    "cwd": folder,
                }
            )
        )
        parent = row_id
    return tuple(lines)


def _messages(past: Sequence[Turn]) -> Iterator[tuple[str, Sequence[Json]]]:
    for turn in past:
        yield turn.role, turn.blocks
    if past and len(results_of(past[-1])) == len(past[-1].blocks):
        yield "user", ()


def _answer(message_id: str, model: str, content: Sequence[Json]) -> Json:
    called = any(block.get("type") == "tool_use" for block in content)
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "tool_use" if called else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


def _role(row: Fields) -> str:
    """Return whose turn a line belongs to; "" for the CLI's own notes."""
    kind = row.get("type")
    if kind not in {"user", "assistant"} or row.get("isSidechain") is True:
        return ""
    content = fields(row.get("message")).get("content")
    # The step from results to the answer is a message of the user that says nothing.
    return "" if kind == "user" and not isinstance(content, str) and not items(content) else str(kind)


def _digest(session_id: str, number: int) -> str:
    return blake3(f"{session_id}\n{number}".encode()).hexdigest()


def _row_id(session_id: str, number: int) -> str:
    digits = _digest(session_id, number)
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))
