"""Bad input gets a clear error in the protocol's own shape, and no provider hears of it."""

import gzip
import json
import sys
import zlib

import pytest

from cachegate.wire.facts import Protocol
from provider_streams import PATH, request
from running_gateway import RunningGateway, config_for, running_gateway
from scripted_upstream import ScriptedUpstream

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

DEEP = b'{"model":"m","input":' + b"[" * 100_000 + b"]" * 100_000 + b"}"

BAD_BODIES = {
    "empty": (b"", "not valid JSON"),
    "no JSON": (b"hello", "not valid JSON"),
    "cut short": (b'{"model":"m"', "not valid JSON"),
    "two values": (b'{"model":"m"}{}', "not valid JSON"),
    "an array": (b"[1]", "not an object"),
    "a string": (b'"x"', "not an object"),
    "too deep": (DEEP, "too deeply"),
    "no model": (b"{}", "names no model"),
    "an empty model": (b'{"model":""}', "names no model"),
    "a null model": (b'{"model":null}', "names no model"),
    "a number as model": (b'{"model":7}', "names no model"),
    "an endless model": (b'{"model":"%b"}' % (b"m" * 300), "300 characters"),
    "a field twice": (b'{"model":"a","model":"b"}', "twice"),
}


async def ask(
    gateway: RunningGateway,
    protocol: Protocol,
    data: bytes,
    headers: dict[str, str] | None = None,
    method: str = "POST",
) -> tuple[int, str, str]:
    """Return status, error type or code, and message."""
    url = gateway.url + PATH[protocol]
    async with gateway.client.request(method, url, data=data, headers=headers) as response:
        payload = json.loads(await response.read())
        assert response.headers["content-type"] == "application/json"
    error = payload["error"]
    if protocol is Protocol.MESSAGES:
        assert payload["type"] == "error"
        return response.status, error["type"], error["message"]
    assert set(error) == {"message", "type", "code", "param"}
    return response.status, error["type"], error["message"]


@pytest.mark.parametrize("name", BAD_BODIES)
async def test_a_bad_body_is_a_400(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol, name: str
) -> None:
    data, words = BAD_BODIES[name]
    status, kind, message = await ask(gateway, protocol, data)
    assert (status, kind) == (400, "invalid_request_error")
    assert words in message
    assert upstream.requests == []
    assert len(gateway.store) == 0


async def test_a_body_beyond_the_limit_is_a_413_whatever_its_form(
    upstream: ScriptedUpstream, protocol: Protocol
) -> None:
    large = request(protocol, text="x" * 5_000)
    forms = {"": large, "gzip": gzip.compress(large), "zstd": zstd.compress(large)}
    async with running_gateway(config_for(upstream.url, limits={"bodyBytesMax": 4_000})) as gateway:
        for encoding, data in forms.items():
            status, _, message = await ask(gateway, protocol, data, {"content-encoding": encoding} if encoding else {})
            assert status == 413
            assert "4000 bytes" in message
    assert upstream.requests == []


BAD_ENCODINGS = {
    "unknown": ("br", b"x", 415),
    "several": ("gzip, gzip", b"x", 415),
    "no gzip": ("gzip", b"plain", 400),
    "gzip cut short": ("gzip", gzip.compress(b"{}")[:-3], 400),
    "something after gzip": ("gzip", gzip.compress(b"{}") + b"more", 400),
    "raw deflate as gzip": ("gzip", zlib.compress(b"{}"), 400),
    "no zstd": ("zstd", b"plain", 400),
    "zstd cut short": ("zstd", zstd.compress(b"{}" * 100)[:-3], 400),
    "something after zstd": ("zstd", zstd.compress(b"{}") + b"more", 400),
}


@pytest.mark.parametrize("name", BAD_ENCODINGS)
async def test_a_bad_encoding_is_refused(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol, name: str
) -> None:
    encoding, data, expected = BAD_ENCODINGS[name]
    status, _, message = await ask(gateway, protocol, data, {"content-encoding": encoding})
    assert status == expected
    assert message.endswith(".")
    assert upstream.requests == []


async def test_lone_surrogates_of_javascript_clients_pass(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol
) -> None:
    data = request(protocol).replace(b'"hi"', b'"cut emoji \\ud83d and more text"')
    async with gateway.client.post(gateway.url + PATH[protocol], data=data) as response:
        assert response.status == 200
    assert upstream.requests[0].body == data


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_other_methods_are_a_405(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol, method: str
) -> None:
    status, _, message = await ask(gateway, protocol, b"", method=method)
    assert status == 405
    assert "POST" in message
    assert upstream.requests == []


@pytest.mark.parametrize(
    "path", ["/v1/messages", "/v1/messages/count_tokens", "/v1/responses", "/v1/responses/compact"]
)
@pytest.mark.parametrize("upgrade", ["websocket", "WebSocket", "h2c"])
async def test_an_upgrade_is_a_426_before_any_provider_r3(
    gateway: RunningGateway, upstream: ScriptedUpstream, path: str, upgrade: str
) -> None:
    headers = {
        "connection": "Upgrade", "upgrade": upgrade, "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    async with gateway.client.get(gateway.url + path, headers=headers) as response:
        assert response.status == 426
        assert "error" in json.loads(await response.read())
    assert upstream.connections == 0


async def test_a_full_gateway_says_so(upstream: ScriptedUpstream, protocol: Protocol) -> None:
    async with running_gateway(config_for(upstream.url, limits={"inFlightMax": 1})) as gateway:
        url = f"{gateway.url}/v1/messages"
        data = json.dumps({"model": "synthetic/hang", "stream": True, "messages": []}).encode()
        async with gateway.client.post(url, data=data) as hanging:
            assert hanging.status == 200
            status, _, _ = await ask(gateway, protocol, request(protocol))
            assert status == 503


async def test_a_clients_key_is_not_sent_to_another_company(
    gateway: RunningGateway, upstream: ScriptedUpstream, protocol: Protocol
) -> None:
    other = "openai/gpt-x" if protocol is Protocol.MESSAGES else "anthropic/claude-x"
    data = request(protocol).replace(b"model-x", other.encode())
    status, _, message = await ask(gateway, protocol, data, {"authorization": "Bearer mine", "x-api-key": "mine"})
    assert status == 400
    assert "Set apiKey for it" in message
    assert upstream.connections == 0


async def test_every_rejected_request_leaves_one_record(gateway: RunningGateway, protocol: Protocol) -> None:
    await ask(gateway, protocol, b"{}")
    assert [(record.ending, record.status, record.detail) for record in gateway.records] == [
        ("rejected", 400, "invalid")
    ]
