"""Where a request says `cache_control`: up to there Anthropic keeps the prompt, and finds it again.

At each mark it looks for something kept at the last 20 blocks. A client's own marks are taken as they are. Without any,
the end of the tools and of the instructions are marked, which other conversations share, and the tail, so that the next
request finds this one. An agent's turn can be longer than 20 blocks, so the place where the request before this one
ended is marked as well, beside a client's own marks, too. Marks are no part of the prompt: they move without any loss.
"""

from collections.abc import Sequence
from itertools import count

from cachegate.wire.hub import Json
from cachegate.wire.messages.content_renderer import Block, Turn

MARK: Json = {"type": "ephemeral"}
MARKS_MAX = 4
LOOK_BACK = 20
"""Blocks at which Anthropic looks from a mark, its own included."""


def place(tools: Sequence[Block], system: Sequence[Block], turns: Sequence[Turn], *, allowed: bool) -> list[list[Json]]:
    """Return the blocks as they are sent: those of the tools, of the instructions, and of each turn."""
    marks = _chosen(tools, system, turns) if allowed else set()
    numbers = count()
    sections = (tools, system, *(turn.blocks for turn in turns))
    return [[_sent(block, mark=next(numbers) in marks) for block in section] for section in sections]


def _sent(block: Block, *, mark: bool) -> Json:
    return {**block.fields, "cache_control": MARK} if mark else block.fields


def _chosen(tools: Sequence[Block], system: Sequence[Block], turns: Sequence[Turn]) -> set[int]:
    """Return the numbers of the blocks to mark, counted through all of them."""
    conversation = [block for turn in turns for block in turn.blocks]
    everything = [*tools, *system, *conversation]
    first = len(tools) + len(system)
    asked = [number for number, block in enumerate(everything) if block.marked and block.cacheable][-MARKS_MAX:]
    if asked:
        own = [number - first for number in asked if number >= first]
        more = _bridge(conversation, own, _previous_end(turns), MARKS_MAX - len(asked))
        return {*asked, *(first + number for number in more)}
    fixed = (_last(everything, 0, len(tools)), _last(everything, len(tools), first))
    marks = {number for number in fixed if number is not None}
    return marks | {first + number for number in _tail(conversation, _previous_end(turns), MARKS_MAX - len(marks))}


def _previous_end(turns: Sequence[Turn]) -> int:
    """Return where the request before this one ended: at the last block before the assistant's last turn."""
    last = max((number for number, turn in enumerate(turns) if turn.role == "assistant"), default=0)
    return sum(len(turn.blocks) for turn in turns[:last]) - 1


def _bridge(blocks: Sequence[Block], own: Sequence[int], previous_end: int, budget: int) -> list[int]:
    """Return the places to mark besides the client's own ones, where these do not reach the request before."""
    reached = any(0 <= mark - previous_end < LOOK_BACK for mark in own)
    if not own or reached or not 0 <= previous_end < own[-1]:
        return []
    return _before(blocks, own[-1], previous_end, budget)


def _tail(blocks: Sequence[Block], previous_end: int, budget: int) -> list[int]:
    """Return the places at the tail: its end, and those before it."""
    end = _last(blocks, 0, len(blocks))
    return [] if end is None or not budget else [end, *_before(blocks, end, previous_end, budget - 1)]


def _before(blocks: Sequence[Block], mark: int, previous_end: int, budget: int) -> list[int]:
    """Return places before a mark: where the request before ended, or else as far as a mark reaches."""
    marks: list[int] = []
    while len(marks) < budget and (seen := mark - LOOK_BACK + 1) > 0:  # from there on everything is looked at
        found = _cacheable(blocks, previous_end if 0 <= previous_end < seen else seen - 1, mark)
        if found is None:
            break
        marks.append(found)
        mark = found
    return marks


def _cacheable(blocks: Sequence[Block], wanted: int, upper: int) -> int | None:
    """Return the block at `wanted` or next to it that may have a mark: rather later, to leave no gap."""
    places = [*range(wanted, upper), *range(wanted - 1, -1, -1)]
    return next((number for number in places if blocks[number].cacheable), None)


def _last(blocks: Sequence[Block], start: int, end: int) -> int | None:
    return next((number for number in range(end - 1, start - 1, -1) if blocks[number].cacheable), None)
