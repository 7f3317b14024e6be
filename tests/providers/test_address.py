"""Which addresses `selfHosted` accepts (R11)."""

from collections.abc import Sequence

import pytest
from yarl import URL

from cachegate.providers.address import NotSelfHosted, is_loopback, pinned_addresses

ALLOWED = [
    "http://127.0.0.1:8080", "http://127.9.9.9", "http://[::1]:1", "http://[::ffff:127.0.0.1]:1", "https://100.64.0.1",
    "http://100.127.255.254", "http://[fd7a:115c:a1e0::1]:1", "http://[fd7a:115c:a1e0:ffff::9]",
]  # fmt: skip
REFUSED = [
    "http://10.0.0.1", "http://192.168.1.1", "http://172.16.0.1", "http://169.254.1.1", "http://0.0.0.0", "http://[::]",
    "http://8.8.8.8", "http://100.63.255.255", "http://100.128.0.0", "http://100.100.100.100", "http://100.100.0.1",
    "http://100.115.92.1", "http://[fd7a:115c:a1e0::53]", "http://[fd7a:115c:a1e1::1]", "http://[fe80::1%25eth0]",
    "http://[fc00::1]", "http://2130706433", "http://0x7f.1", "http://017700000001", "http://127.1",
    "http://user@127.0.0.1", "http://user:pw@localhost", "ftp://127.0.0.1",
]  # fmt: skip


def never(host: str, port: int) -> Sequence[str]:
    raise AssertionError(f"an address needs no lookup: {host}:{port}")


@pytest.mark.parametrize("url", ALLOWED)
def test_this_machine_and_tailnet_peers_are_accepted(url: str) -> None:
    assert len(pinned_addresses(URL(url), never)) == 1


@pytest.mark.parametrize("url", REFUSED)
def test_everything_else_is_refused_with_a_reason(url: str) -> None:
    with pytest.raises(NotSelfHosted) as caught:
        pinned_addresses(URL(url), never)
    assert str(caught.value)


def test_a_name_must_resolve_wholly_inside() -> None:
    answers = {"inside": ("127.0.0.1", "100.64.0.7"), "half": ("127.0.0.1", "10.0.0.1"), "empty": ()}

    def lookup(host: str, port: int) -> Sequence[str]:
        assert port == 8080
        return answers[host]

    assert pinned_addresses(URL("http://inside:8080"), lookup) == ("127.0.0.1", "100.64.0.7")
    for host in ("half", "empty"):
        with pytest.raises(NotSelfHosted):
            pinned_addresses(URL(f"http://{host}:8080"), lookup)


def test_a_name_that_cannot_be_resolved_is_refused() -> None:
    def lookup(host: str, port: int) -> Sequence[str]:
        raise OSError(f"no such name {host}:{port}")

    with pytest.raises(NotSelfHosted, match="cannot be resolved"):
        pinned_addresses(URL("http://gone.ts.net"), lookup)


def test_localhost_resolves_here() -> None:
    assert set(pinned_addresses(URL("http://localhost:1"))) <= {"127.0.0.1", "::1"}


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("[::1]", True), ("LocalHost", True), ("::ffff:127.0.0.1", True),
     ("10.0.0.1", False), ("localhost.evil", False), ("", False)],
)  # fmt: skip
def test_loopback_is_literal(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
