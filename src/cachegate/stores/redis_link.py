"""The connection to a Redis or Valkey: scripts go in, replies come out, and every failure is a `StoreFailed`.

Three settings of the client matter. A reply is waited for 50 ms and no longer: a frozen server looks like a slow one,
and a request must not wait for the state of its guard. The client repeats nothing by itself: what a lost reply means is
for the store to know. And the pool is bounded, so that a slow server meets no crowd.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any, cast

from redis import Redis as PlainRedis
from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster as PlainCluster
from redis.exceptions import (
    ConnectionError as NotConnected,
)
from redis.exceptions import (
    NoScriptError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import (
    TimeoutError as NoReply,
)
from redis.retry import Retry as PlainRetry

from cachegate.state_address import StateAddress
from cachegate.stores.base import StoreFailed
from cachegate.stores.redis_scripts import Script

DEADLINE_S = 0.05
"""For one question, everything included. Replies take 0.3 ms; a request that waits longer gains nothing by it."""
START_DEADLINE_S = 5.0
"""For the question that the start waits for; a server that has just been started may take a second."""
CONNECTIONS_MAX = 16
"""To one server. Each is busy for a fraction of a millisecond at a time."""
RECONNECTS = 1
"""A connection that was closed while it was idle is noticed when it is used, and says nothing of the server."""

_REMEDIES = {
    "NOAUTH": "give the address a password",
    "WRONGPASS": "correct the credentials of the address",
    "NOPERM": "allow its user +@hash, +@scripting, +pexpire, +exists, +time, +set and +get on cachegate:*",
    "MOVED": "it is a Redis Cluster: add ?cluster=true to the address",
    "OOM": "raise its maxmemory, or let it evict: maxmemory-policy volatile-ttl",
    "READONLY": "it is a replica: name the primary, or what follows it through a failover",
    "LOADING": "it is reading its data; wait",
}


Arguments = tuple[str | bytes | int, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """A script to be run on the one key that it touches."""

    script: Script
    key: str
    arguments: Arguments


class RedisLink:
    """One server, or one cluster. Nothing is opened before the first question."""

    def __init__(self, address: StateAddress, deadline_s: float = DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._client: Any = _cluster(address, deadline_s) if address.cluster else _server(address, deadline_s)
        self._cluster = address.cluster

    async def run(self, run: Run) -> list[Any]:
        """Return the reply of a script. Raises StoreFailed when there is none before the deadline.

        A script may be run twice when its connection breaks, so it must know itself by an id in its arguments.
        """
        async with self._failing(self._deadline_s):
            for left in reversed(range(RECONNECTS + 1)):
                try:
                    return await self._evaluate(run)
                except NotConnected as error:
                    if left == 0 or isinstance(error, NoReply):
                        raise
        raise AssertionError("a loop of at least one turn returns or raises")

    async def run_all(self, runs: Sequence[Run], deadline_s: float) -> list[list[Any]]:
        """Return the replies of scripts, asked in one go. Raises StoreFailed when one of them has none."""
        async with self._failing(deadline_s):
            if self._cluster:
                return await asyncio.gather(*(self._evaluate(run) for run in runs))
            async with self._client.pipeline(transaction=False) as pipeline:
                for run in runs:
                    pipeline.evalsha(run.script.digest, 1, run.key, *run.arguments)
                replies = await pipeline.execute(raise_on_error=False)
            return [await self._sound(run, reply) for run, reply in zip(runs, replies, strict=True)]

    async def close(self) -> None:
        """Close every connection."""
        try:
            await self._client.aclose()
        except (RedisError, OSError):
            return

    async def _sound(self, run: Run, reply: object) -> list[Any]:
        if isinstance(reply, NoScriptError):
            return await self._evaluate(run)
        if isinstance(reply, BaseException):
            raise reply
        return cast("list[Any]", reply)

    async def _evaluate(self, run: Run) -> list[Any]:
        try:
            return cast("list[Any]", await self._client.evalsha(run.script.digest, 1, run.key, *run.arguments))
        except NoScriptError:
            return cast("list[Any]", await self._client.eval(run.script.text, 1, run.key, *run.arguments))

    @asynccontextmanager
    async def _failing(self, deadline_s: float) -> AsyncIterator[None]:
        """Make one kind of every failure. The client's own words are not repeated: they may quote what was sent."""
        try:
            async with asyncio.timeout(deadline_s):
                yield
        except ReadOnlyError as error:
            await self._forget_connections()
            raise _failure(error, deadline_s) from None
        except (RedisError, OSError) as error:
            raise _failure(error, deadline_s) from None

    async def _forget_connections(self) -> None:
        """Drop the connections to what was the primary: its name may lead elsewhere by now."""
        if not self._cluster:
            await self._client.connection_pool.disconnect(inuse_connections=False)


def agreed(address: StateAddress, key: str, proposal: bytes, deadline_s: float = START_DEADLINE_S) -> bytes:
    """Return what a key holds: the proposal, unless another was faster. Waits for the answer; raises StoreFailed."""
    try:
        with closing(_plain(address, deadline_s)) as client:
            client.set(key, proposal, nx=True)
            held = client.get(key)
    except (RedisError, OSError) as error:
        raise _failure(error, deadline_s) from None
    if not isinstance(held, bytes) or len(held) != len(proposal):
        raise StoreFailed(f"what Redis keeps under {key} is no such value")
    return held


def _failure(error: Exception, deadline_s: float) -> StoreFailed:
    match error:
        case TimeoutError() | NoReply():
            return StoreFailed(f"Redis did not answer within {round(deadline_s * 1000)} ms")
        case ResponseError():
            return StoreFailed(_said(str(error).partition(" ")[0]))
        case _:
            return StoreFailed(f"Redis cannot be reached ({type(error).__name__})")


def _said(code: str) -> str:
    """Say what a server's error means; only its first word is a code and safe to show."""
    shown = code if code.isupper() else "ERR"
    remedy = _REMEDIES.get(shown)
    return f"Redis answered {shown}" if remedy is None else f"Redis answered {shown}: {remedy}"


def _server(address: StateAddress, deadline_s: float) -> Redis:
    where: dict[str, Any] = {"host": address.host, "port": address.port}
    kind: type[Any] = Connection
    if address.path:
        kind, where = UnixDomainSocketConnection, {"path": address.path}
    elif address.tls:
        kind = SSLConnection
        where |= {"ssl_ca_certs": address.authority_file}
    pool = BlockingConnectionPool(
        connection_class=kind,
        max_connections=CONNECTIONS_MAX,
        timeout=cast("int", deadline_s),
        db=address.database,
        **where,
        **_settings(address, deadline_s),
    )
    return Redis.from_pool(pool)


def _cluster(address: StateAddress, deadline_s: float) -> RedisCluster:
    secured: dict[str, Any] = {"ssl": True, "ssl_ca_certs": address.authority_file} if address.tls else {}
    return RedisCluster(
        startup_nodes=[ClusterNode(address.host, address.port)],
        max_connections=CONNECTIONS_MAX,
        **secured,
        **_settings(address, deadline_s),
    )


def _plain(address: StateAddress, deadline_s: float) -> Any:  # noqa: ANN401 -- two clients, the same commands
    """Return a client that waits in place, for the one question that is asked before there is a loop."""
    settings = {**_settings(address, deadline_s), "retry": PlainRetry(NoBackoff(), 0)}
    if address.tls:
        settings |= {"ssl": True, "ssl_ca_certs": address.authority_file}
    if address.cluster:
        return PlainCluster(host=address.host, port=address.port, **settings)
    if address.path:
        return PlainRedis(unix_socket_path=address.path, db=address.database, **settings)
    return PlainRedis(host=address.host, port=address.port, db=address.database, **settings)


def _settings(address: StateAddress, deadline_s: float) -> dict[str, Any]:
    return {
        "username": address.username,
        "password": address.password,
        "socket_timeout": deadline_s,
        "socket_connect_timeout": deadline_s,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
