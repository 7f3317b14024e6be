"""One world from one seed: a gateway with its real road, readers, routes and store, and everything around it made up.

Sizes are a thirty-second of the real ones, so that a large request has 8 KB and thousands of them fit into a second.
"""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from cachegate.guard.machine import Ending
from cachegate.guard.policy import Policy
from cachegate.guard.scope import SECRET_BYTES
from cachegate.observe.log import LOGGER
from cachegate.providers.synthetic import SyntheticSettings
from cachegate.road import Gateway, serve_one
from cachegate.routing import Bound, Routes
from cachegate.stores.memory import MemoryStore
from cachegate.wire.facts import Protocol
from cachegate.wire.parse import parse
from sim.audit import Auditor, WatchedStore
from sim.bodies import Address, Purpose, Talk, ask
from sim.callers import Leaving, SimCaller
from sim.clients import Client, fresh_talk
from sim.habits import HABITS, Habit
from sim.truth import CANARY, CURRENT, Ask, Served
from sim.upstreams import NATURES, Nature, SimProvider, Weather
from sim.virtual_time import run

SEEDS, CLIENTS = 32, 32
"""Worlds by default, and clients of each."""
ALWAYS = NATURES[:2]
"""Providers of every world, whose caches work; others are drawn."""
DRAWN = 3
LARGE_TOKENS, LARGE_BYTES = 2_048, 8_192
GENTLE_TIMES = 3
"""As many of a gentle kind as of any other: whom no stop may meet must be met often."""
FORGETFUL_ENTRIES = 12
"""Budgets that the store of a forgetful world holds."""
SHUTDOWNS_MAX = 3


@dataclass(frozen=True, slots=True)
class Played:
    """What came of one world."""

    seed: int
    broken: str
    """What must not be, with its story; empty when all went well."""
    seen: Counter[str]
    """What happened how often."""
    story: tuple[object, ...]
    """Every record, to tell one run from another."""


@dataclass(slots=True)
class World:
    """A gateway among its clients and providers."""

    dice: Random
    gateway: Gateway
    auditor: Auditor
    store: MemoryStore
    story: list[object] = field(default_factory=list)
    callers: list[SimCaller] = field(default_factory=list)
    numbers: int = 0

    @property
    def broken(self) -> bool:
        """See `clients.Sender`."""
        return bool(self.auditor.broken)

    async def send(self, address: Address, purpose: Purpose, talk: Talk, leaving: Leaving) -> Ask:
        """See `clients.Sender`."""
        self.numbers += 1
        sent = ask(self.numbers, address, purpose, talk, self.dice)
        caller = SimCaller(sent, leaving)
        caller.task = asyncio.create_task(self._serve(sent, caller))
        if leaving.after_s:
            asyncio.get_running_loop().call_later(leaving.after_s, caller.depart, Ending.CANCELLED)
        self.callers.append(caller)
        await asyncio.wait({caller.task})
        self.callers.remove(caller)
        if not caller.task.cancelled() and (error := caller.task.exception()) is not None:
            self.auditor.fault(f"the road raised {error!r}", sent)
        await asyncio.sleep(1.0)
        self.auditor.ended(sent, caller)
        return sent.attempts[-1]

    async def _serve(self, sent: Ask, caller: SimCaller) -> None:
        CURRENT.set(Served(sent))
        await serve_one(self.gateway, parse(sent.received, self.gateway.secret), caller)

    async def shut_down(self) -> None:
        """Cut everything that runs, as a worker does that is being replaced; its store lives on."""
        for _ in range(self.dice.randrange(SHUTDOWNS_MAX)):
            await asyncio.sleep(self.dice.uniform(600, 3_000))
            for caller in tuple(self.callers):
                caller.depart(Ending.SHUTDOWN)


def play(seed: int, clients: int = CLIENTS) -> Played:
    """Let the world of a seed go by. The providers' own bugs are part of it, so the gateway's log stays quiet."""
    before = LOGGER.level
    LOGGER.setLevel(logging.CRITICAL)
    try:
        return run(_play(seed, clients))
    finally:
        LOGGER.setLevel(before)


async def _play(seed: int, clients: int) -> Played:
    dice = Random(seed)
    natures = [*ALWAYS, *dice.sample(NATURES[len(ALWAYS) :], DRAWN)]
    people = dice.choices(HABITS, [GENTLE_TIMES if habit.gentle else 1 for habit in HABITS], k=clients)
    addresses = [_address(number, dice, natures) for number in range(clients)]
    world = _world(dice, natures, people, addresses)
    async with asyncio.TaskGroup() as group:
        group.create_task(world.shut_down())
        for habit, address in zip(people, addresses, strict=True):
            own = Random(dice.getrandbits(64))
            group.create_task(Client(address, habit, fresh_talk(own), own, world).live())
    world.auditor.at_rest(world.store.in_flight)
    return Played(seed, world.auditor.broken, world.auditor.seen, tuple(world.story))


def _world(dice: Random, natures: list[Nature], people: list[Habit], addresses: list[Address]) -> World:
    loop = asyncio.get_running_loop()
    forgetful = dice.random() < 1 / 5
    policy = Policy(
        large_tokens=LARGE_TOKENS,
        large_bytes=LARGE_BYTES,
        entries_max=FORGETFUL_ENTRIES if forgetful else 4_096,
    )

    def now_ms() -> int:
        return int(loop.time() * 1_000)

    auditor = Auditor(
        policy=policy,
        now_ms=now_ms,
        self_hosted=frozenset(nature.name for nature in natures if nature.self_hosted),
        forgetful=forgetful,
        spared=frozenset() if forgetful else _spared(people, addresses, natures),
    )
    store = MemoryStore(policy.entries_max)
    slow, delays = dice.random() < 1 / 2, Random(dice.getrandbits(64))
    story: list[object] = []
    gateway = Gateway(
        routes=_routes(natures, Weather(dice.choice((20.0, 100.0, 400.0)), loop.time), addresses),
        store=WatchedStore(store, auditor, lambda: delays.choice((0.0, 0.001, 0.04)) if slow else 0.0),
        policy=policy,
        guard_enabled=True,
        secret=dice.randbytes(SECRET_BYTES),
        observers=(auditor.recorded, lambda record: story.append((record.request_id, record.usage, record.guard))),
        now_ms=now_ms,
    )
    return World(dice, gateway, auditor, store, story)


def _routes(natures: list[Nature], weather: Weather, addresses: list[Address]) -> Routes:
    settings = SyntheticSettings(minimum_tokens=32)
    bounds = (Bound(kind.name, SimProvider(kind, settings, weather), kind.self_hosted) for kind in natures)
    rules = {
        address.name: (f"{address.provider}/{address.model}", f"{address.spare}/{address.model}")
        for address in addresses
        if address.spare
    }
    return Routes({bound.name: bound for bound in bounds}, rules)


def _address(number: int, dice: Random, natures: list[Nature]) -> Address:
    """Return who a client is. Most have a thread of their own; some share one, and some name none."""
    protocol = dice.choice((Protocol.MESSAGES, Protocol.RESPONSES))
    kind = dice.choices(("own", "shared", "anonymous"), (7, 2, 1))[0]
    caller = {"own": f"{CANARY}-{number}", "shared": f"{CANARY}-{protocol.value}", "anonymous": None}[kind]
    name = {Protocol.MESSAGES: "x-claude-code-session-id", Protocol.RESPONSES: "thread-id"}[protocol]
    provider, spare = (nature.name for nature in dice.sample(natures, 2))
    return Address(
        client=f"{kind} {number}",
        protocol=protocol,
        tenant=dice.choice(("", "alice")),
        provider=provider,
        model=dice.choice(("model-a", "model-b")),
        caller=caller,
        headers=() if caller is None else ((name, caller),),
        spare=spare if dice.random() < 1 / 4 else "",
    )


def _spared(people: list[Habit], addresses: list[Address], natures: list[Nature]) -> frozenset[str]:
    """Return the clients whom no stop may meet: gentle, on a thread of their own, at a provider without a fault."""
    honest = {nature.name for nature in natures if nature.flawless}
    return frozenset(
        address.client
        for habit, address in zip(people, addresses, strict=True)
        if habit.gentle and address.client.startswith("own") and address.provider in honest
    )
