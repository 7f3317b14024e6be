"""The tree of errors and their statuses."""

import pytest

from cachegate.errors import (
    HTTP_STATUS,
    BadInput,
    ConfigError,
    ErrorKind,
    GatewayError,
    Unavailable,
    Unroutable,
    UpstreamError,
    UpstreamTimeout,
)


def test_every_kind_has_a_status() -> None:
    assert set(HTTP_STATUS) == set(ErrorKind)
    assert len(set(HTTP_STATUS.values())) == len(HTTP_STATUS)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BadInput("x"), 400),
        (BadInput("x", ErrorKind.TOO_LARGE), 413),
        (Unroutable("x"), 400),
        (UpstreamError("x"), 502),
        (UpstreamTimeout("x"), 504),
        (Unavailable("x"), 503),
        (GatewayError("x"), 500),
    ],
)
def test_an_error_carries_its_status(error: GatewayError, status: int) -> None:
    assert (error.status, error.message, str(error)) == (status, "x", "x")


def test_a_config_error_lists_every_problem() -> None:
    assert str(ConfigError("a.yaml", ("one", "two"))) == "a.yaml:\n  - one\n  - two"
