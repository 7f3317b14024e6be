"""Which provider, asked in which protocol, for a client of which: as cases of a test, and those that are broken yet."""

from collections.abc import Callable, Mapping

import pytest

from cachegate.wire.facts import Protocol

Road = tuple[str, Protocol, Protocol]
"""Provider, protocol of the client, protocol of the provider."""
Broken = Mapping[str, Callable[[Road], bool]]
"""By what is wrong: where."""


def roads(*which: Road, broken: Broken | None = None) -> pytest.MarkDecorator:
    """One case for each; those that are known to fail must fail."""
    cases = [
        pytest.param(*road, marks=_marks(road, broken or {}), id=f"{road[0]}-{road[1]}-to-{road[2]}") for road in which
    ]
    return pytest.mark.parametrize(("kind", "client", "spoken"), cases)


def _marks(road: Road, broken: Broken) -> list[pytest.MarkDecorator]:
    return [
        pytest.mark.xfail(reason=reason, raises=AssertionError, strict=True)
        for reason, here in broken.items()
        if here(road)
    ]
