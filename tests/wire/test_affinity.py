"""The stable name of a thread."""

from cachegate.wire.affinity import KEY_CHARS, thread_key


def test_a_thread_keeps_its_name_and_shares_it_with_no_other() -> None:
    names = {thread_key(caller, model) for caller in ("codex:a", "codex:b") for model in ("m", "n")}
    assert len(names) == 4
    assert thread_key("codex:a", "m") == "c9f2d967e53f6bc3888e431848f78bd6", "it must survive a restart"
    assert all(name is not None and len(name) == KEY_CHARS for name in names)


def test_who_is_anonymous_has_none() -> None:
    assert thread_key(None, "m") is None


def test_an_odd_id_is_no_obstacle() -> None:
    assert thread_key("\ud800\n", "m") != thread_key("", "\nm")
