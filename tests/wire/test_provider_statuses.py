import pytest

from cachegate.errors import ErrorKind
from cachegate.wire.provider_statuses import KINDS, kind_of


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ErrorKind.INVALID), (401, ErrorKind.UNAUTHORIZED), (402, ErrorKind.FORBIDDEN), (403, ErrorKind.FORBIDDEN),
        (404, ErrorKind.NOT_FOUND), (409, ErrorKind.INVALID), (413, ErrorKind.TOO_LARGE), (422, ErrorKind.INVALID),
        (429, ErrorKind.UNAVAILABLE), (499, ErrorKind.INVALID), (500, ErrorKind.UPSTREAM), (502, ErrorKind.UPSTREAM),
        (503, ErrorKind.UNAVAILABLE), (504, ErrorKind.TIMEOUT), (529, ErrorKind.UNAVAILABLE),
    ],
)  # fmt: skip
def test_a_status_says_what_happened(status: int, kind: ErrorKind) -> None:
    assert kind_of(status) is kind


@pytest.mark.parametrize("status", [0, 200, 302, 399])
def test_what_is_no_error_status_is_the_providers_own_mistake(status: int) -> None:
    assert kind_of(status) is ErrorKind.UPSTREAM


def test_the_table_holds_only_what_the_hundred_does_not_say() -> None:
    assert not {ErrorKind.INVALID, ErrorKind.UPSTREAM} & set(KINDS.values())
