"""Addresses of a shared state: what they mean, and that nothing shows their credentials."""

import pytest

from cachegate.state_address import SCHEMES, StateAddress, parse_state_address


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("redis://h", StateAddress("h")),
        ("valkey://h:7000/2", StateAddress("h", 7000, database=2)),
        ("rediss://u:p%40ss@h", StateAddress("h", tls=True, username="u", password="p@ss")),
        ("rediss://h?ca=/ca.pem", StateAddress("h", tls=True, authority_file="/ca.pem")),
        ("valkeys://h?cluster=true", StateAddress("h", tls=True, cluster=True)),
        ("redis+cluster://h", StateAddress("h", cluster=True)),
        ("unix:///run/r.sock?db=1", StateAddress(path="/run/r.sock", database=1)),
    ],
)  # fmt: skip
def test_what_an_address_means(text: str, means: StateAddress) -> None:
    assert parse_state_address(text) == means


@pytest.mark.parametrize(
    "text",
    ["http://h", "hunter2", "redis://:hunter2@h/x", "redis://:hunter2@h?timeout=1", "redis://:hunter2@h?ca=/x",
     "redis://:hunter2@h:port", "unix://h/run", "redis://:hunter2@h/1?cluster=true", "redis://h?cluster=maybe"],
)  # fmt: skip
def test_what_is_wrong_is_said_without_the_address(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_state_address(text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("scheme", sorted(SCHEMES.keys() - {"unix"}))
def test_no_credential_is_shown(scheme: str) -> None:
    address = parse_state_address(f"{scheme}://user:hunter2@h")
    assert "hunter2" not in f"{address} {address!r}"
    assert "user" not in f"{address} {address!r}"
