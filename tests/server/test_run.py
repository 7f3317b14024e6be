"""What surrounds serving; signals are tested on real processes in tests/test_cli.py."""

import sys

import pytest

from cachegate.server.run import tune_allocator


def test_tuning_the_allocator_is_harmless_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    tune_allocator()
    monkeypatch.setattr(sys, "platform", "win32")
    tune_allocator()
