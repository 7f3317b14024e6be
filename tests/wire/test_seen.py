import pytest

from cachegate.wire.seen import Failed, Reseed


@pytest.mark.parametrize(
    ("reason", "by_client"),
    [("fingerprint_changed", True), ("compaction_window", False), ("idle", False), ("lost", False), ("", False)],
)
def test_only_a_changed_fingerprint_is_the_clients_doing(reason: str, by_client: bool) -> None:
    assert Reseed(reason).by_client is by_client


def test_a_failure_is_no_timeout_unless_it_says_so() -> None:
    assert not Failed("overloaded_error").timed_out
