"""Clients: each keeps one conversation and does what its habit says, until its turns are used up."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol as Interface
from typing import TypeVar

from cachegate.wire.facts import Operation, Protocol
from sim.bodies import Address, Purpose, Talk, item, text, tools
from sim.callers import STAYS, Exit, Leaving
from sim.habits import Act, Habit, Reaction
from sim.truth import Ask, Parts

TURNS = 14
WAIT_S = 300.5
"""What the notice of a stop asks for."""
RETRY_S = 10.0
RETRIES_MAX = 8
SIZE_MAX = 90_000
"""Bytes of a conversation from which on every client compacts."""
WELL_COMPACTED_PERCENT = 5
"""What is left of a full conversation is then too small for a miss: a large rest, right after a break, is the second
one, and the rules stop what comes next (R15)."""
_EFFORTS = ("", "low", "medium", "high")
_SPEEDS = ("", "fast")

_Choice = TypeVar("_Choice")


class Sender(Interface):
    """What a client needs of its world."""

    @property
    def broken(self) -> bool:
        """Whether there is nothing left to find out."""

    async def send(self, address: Address, purpose: Purpose, talk: Talk, leaving: Leaving) -> Ask:
        """Send a conversation as it stands and return when the request is over."""


@dataclass(slots=True)
class Client:
    """One client. Its conversation and its dice are its own."""

    address: Address
    habit: Habit
    talk: Talk
    dice: Random
    world: Sender

    async def live(self) -> None:
        """Do so many things, with pauses that no cache notices between them."""
        await asyncio.sleep(self.dice.uniform(0, 600))
        acts = self._acts()
        for _ in range(TURNS):
            if self.world.broken:
                return
            act = _one_of(self.habit.acts, self.dice)
            await acts[act](act)
            if self.talk.size > SIZE_MAX:
                await self._compact(Act.COMPACT)
            await asyncio.sleep(self.dice.uniform(0.5, 40))

    def _acts(self) -> dict[Act, Callable[[Act], Awaitable[None]]]:
        leaving = {
            Act.LEAVE_EARLY: lambda: Leaving(Exit.CANCELS, after_s=self.dice.uniform(0, 0.3)),
            Act.LEAVE_LATE: lambda: Leaving(Exit.AT_THE_END),
            Act.VANISH: lambda: Leaving(Exit.UNNOTICED, piece=self.dice.randrange(9)),
            Act.STALL: lambda: Leaving(Exit.STALLS, piece=self.dice.randrange(9)),
        }
        changes = (Act.TOOLS, Act.INSTRUCTIONS, Act.THINKING, Act.SPEED, Act.OPENING, Act.EDIT, Act.SLIDE)
        return {
            Act.TALK: self._talk,
            Act.BIG: self._talk,
            Act.SIDE: self._aside,
            Act.COUNT: self._aside,
            Act.STEER: self._steer,
            Act.DOUBLE: self._double,
            Act.COMPACT: self._compact,
            Act.IDLE: lambda act: self._pause(act, self.dice.uniform(301, 900)),
            Act.NEARLY_IDLE: lambda act: self._pause(act, self.dice.choice((290.0, 299.9, 300.0, 300.1))),
            **dict.fromkeys(changes, self._change),
            **{act: self._leave_as(leave) for act, leave in leaving.items()},
        }

    async def _talk(self, act: Act, leaving: Leaving = STAYS) -> None:
        """Say something, or give a tool's result, and take the answer in."""
        self.talk.items.append(item(self.dice, "user", self._size(act)))
        await self._exchange(act, leaving)

    async def _exchange(self, act: str, leaving: Leaving = STAYS) -> None:
        streamed = self.dice.random() < 9 / 10
        ask = await self.world.send(self.address, Purpose(act, streamed=streamed), self.talk, leaving)
        if ask.finished:
            self.talk.items.append(item(self.dice, "assistant", self.dice.randrange(50, 800)))
        elif ask.stopped:
            await self._stopped()

    def _size(self, act: Act) -> int:
        big = act is Act.BIG
        return self.dice.randrange(9_000, 24_000) if big else self.dice.randrange(100, 2_500)

    async def _stopped(self) -> None:
        """Take a stop as this client does."""
        match _one_of(self.habit.stopped, self.dice):
            case Reaction.RETRY:
                await self._retry()
            case Reaction.WAIT:
                await asyncio.sleep(WAIT_S)
                await self.world.send(self.address, Purpose("comes back"), self.talk, STAYS)
            case Reaction.COMPACT:
                await self._compact(Act.COMPACT)
            case Reaction.HALVE:
                self._keep(self.talk.size * self.dice.choice((40, 49, 51)) // 100)
                await self.world.send(self.address, Purpose("comes back smaller"), self.talk, STAYS)
            case Reaction.GO_ON:
                self.talk.items.append(item(self.dice, "user", 200))

    async def _retry(self) -> None:
        """Send the same again and again."""
        for _ in range(self.dice.randrange(1, RETRIES_MAX)):
            await asyncio.sleep(RETRY_S)
            ask = await self.world.send(self.address, Purpose("retries"), self.talk, STAYS)
            if not ask.stopped:
                return

    def _leave_as(self, leaving: Callable[[], Leaving]) -> Callable[[Act], Awaitable[None]]:
        return lambda act: self._talk(act, leaving())

    async def _steer(self, act: Act) -> None:
        """Cancel a running request, and send it again with one more sentence."""
        await self._talk(act, Leaving(Exit.CANCELS, after_s=self.dice.choice((0.3, 2.0, 6.0, 12.0))))
        await asyncio.sleep(self.dice.uniform(0, 3))
        if self.dice.random() < 2 / 3:
            await self._talk(Act.TALK)

    async def _double(self, act: Act) -> None:
        """Send the same twice, the second while the first runs; what they leave behind is one turn."""
        self.talk.items.append(item(self.dice, "user", self._size(act)))
        first, second = Purpose("sends first"), Purpose("sends again")
        late = Leaving(Exit.CANCELS, after_s=5.0) if self.dice.random() < 1 / 4 else STAYS
        await asyncio.gather(
            self.world.send(self.address, first, self.talk, late),
            self._later(self.dice.choice((0.0, 0.1, 4.0)), second),
        )

    async def _later(self, seconds: float, purpose: Purpose) -> None:
        await asyncio.sleep(seconds)
        await self.world.send(self.address, purpose, self.talk, STAYS)

    async def _aside(self, act: Act) -> None:
        """Ask something small: in the same budget, in the auxiliary one, or only for a count."""
        small = Talk(self.talk.parts, [item(self.dice, "user", 200)])
        messages = self.address.protocol is Protocol.MESSAGES
        purpose = Purpose(act)
        if act is Act.COUNT and messages:
            purpose = Purpose(act, operation=Operation.COUNT_TOKENS, streamed=False)
        elif self.dice.random() < 1 / 2:
            kind = ("x-claude-code-request-class", "auxiliary")
            title = ("x-codex-turn-metadata", '{"thread_source":"thread_title"}')
            purpose = Purpose(act, mode="auxiliary", headers=(kind if messages else title,))
        await self.world.send(self.address, purpose, small, STAYS)

    async def _compact(self, act: Act) -> None:
        """Have the conversation summed up, and go on with the sum."""
        trigger = Talk(self.talk.parts, [*self.talk.items, item(self.dice, "user", 60)])
        if self.address.protocol is Protocol.MESSAGES:
            purpose = Purpose(act, mode="compaction", headers=(("x-claude-code-request-class", "compaction"),))
        else:
            purpose = Purpose(act, mode="compaction", operation=Operation.COMPACT, streamed=False)
        ask = await self.world.send(self.address, purpose, trigger, STAYS)
        if ask.finished or self.talk.size > SIZE_MAX:
            rest = self.dice.choice((10, 30, 70, 90)) if not self.habit.gentle else WELL_COMPACTED_PERCENT
            self._keep(self.talk.size * rest // 100)
            self.talk.items[0] = item(self.dice, "user", 600)

    def _keep(self, size: int) -> None:
        """Drop the oldest turns behind the opening until the rest is this small."""
        items = self.talk.items
        while len(items) > 1 and self.talk.size > size:
            del items[1]
        if self.talk.size > size:
            items[0] = item(self.dice, "user", max(100, size - 200))

    async def _change(self, act: Act) -> None:
        """Change something that the cache is keyed by, or the history, and go on."""
        talk, dice = self.talk, self.dice
        match act:
            case Act.TOOLS:
                talk.parts = replace(talk.parts, tools=tools(dice, dice.randrange(400, 4_000)))
            case Act.INSTRUCTIONS:
                talk.parts = replace(talk.parts, instructions=f'"{text(dice, 900)}"'.encode())
            case Act.THINKING:
                talk.parts = replace(talk.parts, thinking=dice.choice(_EFFORTS))
            case Act.SPEED:
                talk.parts = replace(talk.parts, speed=dice.choice(_SPEEDS))
            case Act.OPENING:
                talk.items[0] = item(dice, "user", len(talk.items[0]) - 100)
            case Act.EDIT if len(talk.items) > 1:
                at = dice.randrange(1, len(talk.items))
                talk.items[at] = item(dice, "user", len(talk.items[at]))
            case _:
                del talk.items[: len(talk.items) // 3]
        await self._talk(act)

    async def _pause(self, act: Act, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._talk(act)


def _one_of(weights: Mapping[_Choice, int], dice: Random) -> _Choice:
    return dice.choices(list(weights), list(weights.values()))[0]


def fresh_talk(dice: Random) -> Talk:
    """Return a conversation as it is when the client meets the gateway: resumed ones are large already."""
    parts = Parts(
        tools=tools(dice, dice.choice((300, 2_000, 9_000))),
        instructions=f'"{text(dice, dice.choice((200, 2_000)))}"'.encode(),
        thinking=dice.choice(_EFFORTS),
        speed="",
    )
    size = dice.choice((500, 4_000, 12_000, 25_000))
    return Talk(parts, [item(dice, "user", size), item(dice, "assistant", 300)])
