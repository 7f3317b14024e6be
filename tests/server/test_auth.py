"""Keys, Host and Origin: who may ask, and that no key of ours reaches a provider."""

import pytest

from cachegate.errors import GatewayError
from cachegate.server.auth import Access
from cachegate.wire.facts import Protocol
from provider_streams import PATH, request
from running_gateway import RunningGateway, config_for, running_gateway
from scripted_upstream import ScriptedUpstream

KEY = "k" * 32
CLIENTS = [{"name": "alice", "key": KEY}, {"name": "bob", "key": "b" * 32}]
OPEN = Access(clients={}, hosts=frozenset({"gateway.example"}), origins=frozenset({"https://mine.example"}))
KEYED = Access(clients={"alice": KEY, "bob": "b" * 32}, hosts=frozenset(), origins=frozenset())

GOOD_HOSTS = ["localhost", "localhost:4283", "127.0.0.1:1", "[::1]", "[::1]:80", "LOCALHOST", "gateway.example:443"]
BAD_HOSTS = [
    "evil.example", "", "127.0.0.1.nip.io", "localhost.", "localhost:4000/#@attacker.example", "a b", "[::1", "0.0.0.1",
    "127.0.0.2", "localhost:x", "localhost:4283:1", "user@localhost",
]  # fmt: skip


@pytest.mark.parametrize("host", GOOD_HOSTS)
def test_a_known_host_passes(host: str) -> None:
    assert OPEN.admit((("Host", host),)) == ("", (("Host", host),))


@pytest.mark.parametrize("host", BAD_HOSTS)
def test_a_foreign_host_is_a_403(host: str) -> None:
    with pytest.raises(GatewayError) as caught:
        OPEN.admit((("Host", host),))
    assert caught.value.status == 403


@pytest.mark.parametrize("headers", [(), (("Host", "localhost"), ("Host", "localhost"))])
def test_no_host_or_two_are_a_403(headers: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(GatewayError):
        OPEN.admit(headers)


@pytest.mark.parametrize("access", [OPEN, KEYED])
@pytest.mark.parametrize(
    "origin", ["null", "https://evil.example", "http://localhost:9", "", "https://mine.example.evil"]
)
def test_a_foreign_origin_is_a_403_even_with_a_key(access: Access, origin: str) -> None:
    with pytest.raises(GatewayError) as caught:
        access.admit((("host", "localhost"), ("x-cachegate-key", KEY), ("origin", origin)))
    assert caught.value.status == 403


def test_an_allowed_origin_passes_and_a_cross_site_fetch_without_one_does_not() -> None:
    OPEN.admit((("host", "localhost"), ("origin", "https://mine.example"), ("sec-fetch-site", "cross-site")))
    with pytest.raises(GatewayError):
        OPEN.admit((("host", "localhost"), ("sec-fetch-site", "cross-site")))


@pytest.mark.parametrize(
    "header",
    [
        ("x-cachegate-key", KEY),
        ("Authorization", f"Bearer {KEY}"),
        ("authorization", f"bearer  {KEY}"),
        ("X-Api-Key", KEY),
    ],
)
def test_a_key_is_found_where_clients_put_it_and_taken_out(header: tuple[str, str]) -> None:
    others = (("a", "1"), ("x-api-key", "sk-provider"))
    assert KEYED.admit((header, *others)) == ("alice", others)


def test_a_key_that_was_sent_twice_is_taken_out_twice() -> None:
    """The second one would go up as if it were the provider's."""
    headers = (("x-cachegate-key", KEY), ("accept", "x"), ("Authorization", f"Bearer {KEY}"), ("x-api-key", "theirs"))
    assert KEYED.admit(headers) == ("alice", (("accept", "x"), ("x-api-key", "theirs")))


@pytest.mark.parametrize("key", ["", "k" * 31, KEY + "k", f"Bearer {KEY} x", "'; drop table", "\ud800", "k" * 10_000])
def test_a_wrong_key_is_a_401(key: str) -> None:
    for name in ("x-cachegate-key", "authorization", "x-api-key"):
        with pytest.raises(GatewayError) as caught:
            KEYED.admit(((name, key),))
        assert caught.value.status == 401
        assert KEY not in caught.value.message


def test_the_admin_paths_answer_on_loopback_or_to_a_key() -> None:
    KEYED.admit_admin((("host", "localhost"),), "127.0.0.1")
    KEYED.admit_admin((("x-cachegate-key", KEY),), "100.64.0.9")
    for headers, peer in (((("host", "evil.example"),), "127.0.0.1"), ((), "100.64.0.9")):
        with pytest.raises(GatewayError):
            KEYED.admit_admin(headers, peer)


async def test_a_client_key_opens_the_gateway_and_never_goes_up(upstream: ScriptedUpstream, protocol: Protocol) -> None:
    async with running_gateway(config_for(upstream.url, clients=CLIENTS)) as gateway:
        url = gateway.url + PATH[protocol]
        async with gateway.client.post(url, data=request(protocol, stream=False)) as response:
            assert response.status == 401
        headers = {"x-cachegate-key": KEY, "authorization": "Bearer sk-mine"}
        async with gateway.client.post(url, data=request(protocol, stream=False), headers=headers) as response:
            assert response.status == 200
    assert len(upstream.requests) == 1
    assert upstream.requests[0].header("authorization") == "Bearer sk-mine"
    assert all(KEY not in value for _, value in upstream.requests[0].headers)


async def test_tenants_never_share_a_budget_r1(upstream: ScriptedUpstream) -> None:
    async with running_gateway(config_for(upstream.url, clients=CLIENTS)) as gateway:
        url = f"{gateway.url}/v1/responses"
        data = request(Protocol.RESPONSES, prompt_cache_key="same", stream=False)
        for key in (KEY, "b" * 32):
            async with gateway.client.post(url, data=data, headers={"x-cachegate-key": key}) as response:
                assert response.status == 200
        assert len(gateway.store) == 2


async def test_a_page_elsewhere_reaches_nothing(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    for path in ("/v1/messages", "/v1/responses"):
        for headers in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
            url = gateway.url + path
            async with gateway.client.post(url, data=request(Protocol.MESSAGES), headers=headers) as response:
                assert response.status == 403
    async with gateway.client.get(f"{gateway.url}/diagnostics/recent", headers={"host": "evil.example"}) as response:
        assert response.status == 403
    assert upstream.connections == 0
