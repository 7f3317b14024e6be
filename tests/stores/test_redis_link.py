"""The connection: deadlines, what failures are called, TLS, sockets and clusters; and no credential in any word."""

import subprocess
from pathlib import Path

import pytest

from cachegate.state_address import parse_state_address
from cachegate.stores.base import StoreFailed
from cachegate.stores.redis_link import RedisLink, Run, agreed
from cachegate.stores.redis_scripts import BEAT
from redis_servers import free_port, needs_redis, redis_server

RUN = Run(BEAT, "cachegate:1:{a}", (1_000, "keep", "lease", 1_000, ""))
OPEN = Run(BEAT, "cachegate:1:{a}", (1_000, "open", "lease", 1_000, ""))
pytestmark = needs_redis


async def failure(url: str) -> str:
    link = RedisLink(parse_state_address(url))
    with pytest.raises(StoreFailed) as caught:
        await link.run(RUN)
    await link.close()
    return str(caught.value)


async def answers(url: str) -> bool:
    link = RedisLink(parse_state_address(url), deadline_s=5.0)
    first = await link.run(RUN)
    several = await link.run_all([OPEN, RUN], 5.0)
    await link.close()
    return [first[0], *(reply[0] for reply in several)] == [0, 1, 1]


async def test_nothing_there_is_said_without_the_address() -> None:
    told = await failure(f"redis://name:hunter2@127.0.0.1:{free_port()}")
    assert told == "Redis cannot be reached (ConnectionError)"


async def test_credentials_are_used_and_never_said(tmp_path: Path) -> None:
    async with redis_server("redis", tmp_path) as server:
        await server.ask("CONFIG", "SET", "requirepass", "hunter2")
        assert await answers(f"redis://:hunter2@127.0.0.1:{server.port}")
        for wrong in ("", ":hunter3@"):
            told = await failure(f"redis://{wrong}127.0.0.1:{server.port}")
            assert "hunter" not in told
            assert "Redis" in told
        with pytest.raises(StoreFailed, match="Redis") as caught:
            agreed(parse_state_address(f"redis://:hunter3@127.0.0.1:{server.port}"), "k", b"x")
        assert "hunter" not in str(caught.value)


async def test_a_frozen_server_is_given_up(tmp_path: Path) -> None:
    async with redis_server("redis", tmp_path) as server:
        server.freeze()
        assert await failure(server.url) == "Redis did not answer within 50 ms"


async def test_a_socket_of_this_machine(tmp_path: Path) -> None:
    async with redis_server("redis", tmp_path, "--unixsocket", str(tmp_path / "s")):
        assert await answers(f"unix://{tmp_path}/s?db=3")


async def test_tls_with_an_authority_of_ones_own(tmp_path: Path) -> None:
    key, certificate, port = tmp_path / "key", tmp_path / "certificate", free_port()
    subprocess.run(  # noqa: ASYNC221 -- before anything else runs
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    flags = ("--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key))
    async with redis_server("redis", tmp_path, *flags, "--tls-auth-clients", "no"):
        assert await answers(f"rediss://127.0.0.1:{port}?ca={certificate}")
        assert "Redis cannot be reached" in await failure(f"rediss://127.0.0.1:{port}"), "signed by nobody known"


async def test_a_cluster(tmp_path: Path) -> None:
    async with redis_server(
        "redis", tmp_path, "--cluster-enabled", "yes", "--cluster-port", str(free_port())
    ) as server:
        await server.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)
        while "cluster_state:ok" not in str(await server.ask("CLUSTER", "INFO")):  # its own words say when
            pass
        assert await answers(f"{server.url}?cluster=true")
        assert agreed(parse_state_address(f"{server.url}?cluster=true"), "k", b"x") == b"x"
