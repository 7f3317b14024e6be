"""The files of deploy/: read as their programs read them, and three gateways behind a real HAProxy."""

import asyncio
import re
import shutil
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
import yaml

from cachegate.config import parse
from redis_servers import KINDS, free_port, redis_server
from running_gateway import config_for, running_gateway

DEPLOY = Path(__file__).parent.parent / "deploy"
VARIABLES = {"CACHEGATE_STATE": "redis://state", "CACHEGATE_STATE_SECRET": "s" * 32, "CACHEGATE_TEAM_KEY": "k" * 32}
needs_haproxy = pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy is not installed")


def test_the_configuration_is_in_order_and_needs_what_the_others_give_it() -> None:
    text = (DEPLOY / "cachegate.yaml").read_text("utf-8")
    config = parse(text, "cachegate.yaml", VARIABLES).config
    assert config.state_address is not None
    for name in ("compose.yaml", "kubernetes.yaml"):
        assert set(re.findall(r"CACHEGATE_\w+", (DEPLOY / name).read_text("utf-8"))) == set(VARIABLES), name


def test_kubernetes_waits_for_the_drain_and_asks_for_health() -> None:
    deployment, service = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8"))
    pod = deployment["spec"]["template"]["spec"]
    drain_s = yaml.safe_load((DEPLOY / "cachegate.yaml").read_text("utf-8"))["limits"]["drainSeconds"]
    assert pod["terminationGracePeriodSeconds"] > drain_s
    assert pod["containers"][0]["readinessProbe"]["httpGet"]["path"] == "/health"
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]


def test_compose_shares_one_server() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
    assert set(services) == {"gateway", "state", "front"}
    assert services["gateway"]["deploy"]["replicas"] == 3


@needs_haproxy
@pytest.mark.parametrize("kind", KINDS)
async def test_the_third_cold_request_stops_behind_a_real_balancer(kind: str, tmp_path: Path) -> None:
    port = free_port()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(redis_server(kind, tmp_path))
        config = config_for("http://127.0.0.1:9", state=server.url, stateSecret="s" * 32)
        gateways = [await stack.enter_async_context(running_gateway(config)) for _ in range(3)]
        text = (DEPLOY / "haproxy.cfg").read_text("utf-8").replace("bind :4283", f"bind 127.0.0.1:{port}")
        text, found = re.subn(r"    server-template .*\n", "", text)
        assert found == 1
        servers = [
            f"    server g{number} {gateway.url.removeprefix('http://')}\n" for number, gateway in enumerate(gateways)
        ]
        path = tmp_path / "haproxy.cfg"
        path.write_text(text + "".join(servers))
        checked = await asyncio.to_thread(subprocess.run, ["haproxy", "-c", "-f", str(path)], capture_output=True)
        assert checked.returncode == 0, checked.stderr
        balancer = await asyncio.create_subprocess_exec("haproxy", "-db", "-f", str(path))
        try:
            assert await _statuses(f"http://127.0.0.1:{port}") == [200, 200, 400, 400]
        finally:
            balancer.kill()
            await balancer.wait()
        assert sorted(len(gateway.decisions) for gateway in gateways) == [1, 1, 2], "in turn"


async def _statuses(url: str) -> list[int]:
    body = {"model": "synthetic/cold", "max_tokens": 10, "messages": [{"role": "user", "content": "word " * 80_000}]}
    headers = {"x-claude-code-session-id": "one", "host": "localhost"}
    async with aiohttp.ClientSession() as client:
        async with asyncio.timeout(20):
            while True:
                try:
                    async with client.get(f"{url}/", headers=headers) as _:
                        break
                except aiohttp.ClientError:
                    await asyncio.sleep(0.01)
        statuses = []
        for _ in range(4):
            async with client.post(f"{url}/v1/messages", json=body, headers=headers) as answer:
                statuses.append(answer.status)
        return statuses


async def test_a_large_request_is_told_to_wait_where_the_person_wants_it_so() -> None:
    address = {"state": f"redis://127.0.0.1:{free_port()}", "stateSecret": "s" * 32, "stateDown": "block"}
    async with running_gateway(config_for("http://127.0.0.1:9", **address)) as gateway:
        for words, status in ((80_000, 503), (10, 200)):
            body = {
                "model": "synthetic/cold",
                "max_tokens": 10,
                "messages": [{"role": "user", "content": "word " * words}],
            }
            async with gateway.client.post(f"{gateway.url}/v1/messages", json=body) as answer:
                assert (answer.status, "retry-after" in answer.headers) == (status, status == 503)
        async with gateway.client.get(f"{gateway.url}/health") as health:
            assert (await health.json())["state"]["degraded"]
