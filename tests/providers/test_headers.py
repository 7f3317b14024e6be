"""Which headers travel; the road's tests see them on the wire."""

from cachegate.providers.headers import to_client, to_upstream


def test_order_spelling_and_repetition_survive() -> None:
    headers = (("X-B", "1"), ("x-a", "2"), ("X-B", "3"))
    assert to_upstream(headers, keep_credentials=True) == headers
    assert to_client(headers) == headers


def test_credentials_go_only_where_they_belong() -> None:
    headers = (("Authorization", "a"), ("X-Api-Key", "b"), ("api-key", "c"), ("x-goog-api-key", "d"), ("x-e", "e"))
    assert to_upstream(headers, keep_credentials=True) == headers
    assert to_upstream(headers, keep_credentials=False) == (("x-e", "e"),)


def test_what_is_said_to_the_gateway_goes_no_further() -> None:
    headers = (
        ("x-cachegate-key", "a"),
        ("X-Cachegate-Thread-Id", "b"),
        ("x-cachegate-request-class", "c"),
        ("x-3", "3"),
    )
    assert to_upstream(headers, keep_credentials=True) == (("x-3", "3"),)


def test_what_connection_names_stays_here() -> None:
    headers = (("Connection", "close, X-One"), ("connection", "x-two"), ("x-one", "1"), ("X-Two", "2"), ("x-3", "3"))
    assert to_upstream(headers, keep_credentials=True) == (("x-3", "3"),)
    assert to_client(headers) == (("x-3", "3"),)


def test_a_value_that_is_no_text_cannot_break_the_answer() -> None:
    assert to_client((("x-a", "caf\udce9"), ("x-b", "é"))) == (("x-a", "caf?"), ("x-b", "é"))
