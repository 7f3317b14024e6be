import pytest

from cachegate.wire.facts import Protocol, Sender
from cachegate.wire.model_list import asker, model_list
from wire.vendor_sdks import JSON, Wire, anthropic_client, openai_client

MODELS = {"claude-opus-5-5": "anthropic", "synthetic/cold": "synthetic", "gpt-5.5": "openai"}


@pytest.mark.parametrize(
    ("headers", "protocol"),
    [
        ({"Anthropic-Version": "2023-06-01"}, Protocol.MESSAGES),
        ({"x-api-key": "k"}, Protocol.MESSAGES),
        ({"authorization": "Bearer k", "anthropic-version": "2023-06-01"}, Protocol.MESSAGES),
        ({"authorization": "Bearer k"}, Protocol.RESPONSES),
        ({"anthropic-version": "", "x-api-key": ""}, Protocol.RESPONSES),
        ({}, Protocol.RESPONSES),
    ],
)
def test_who_asks_is_told_by_the_headers(headers: dict[str, str], protocol: Protocol) -> None:
    assert asker(Sender.of(tuple(headers.items()))) is protocol


def test_the_list_in_both_shapes() -> None:
    assert model_list(Protocol.RESPONSES, {"a": "x"}) == (
        b'{"object":"list","data":[{"id":"a","object":"model","created":0,"owned_by":"x"}]}'
    )
    assert model_list(Protocol.MESSAGES, {"a": "x"}) == (
        b'{"data":[{"type":"model","id":"a","display_name":"a","created_at":"1970-01-01T00:00:00Z"}],'
        b'"has_more":false,"first_id":"a","last_id":"a"}'
    )


@pytest.mark.parametrize("models", [MODELS, {}], ids=["some", "none"])
def test_openais_sdk_reads_the_list(models: dict[str, str]) -> None:
    with openai_client(Wire(model_list(Protocol.RESPONSES, models), kind=JSON)) as client:
        listed = list(client.models.list())
    assert {model.id: model.owned_by for model in listed} == models
    assert {model.created for model in listed} <= {0}


@pytest.mark.parametrize("models", [MODELS, {}], ids=["some", "none"])
def test_anthropics_sdk_reads_the_list_and_asks_for_no_second_page(models: dict[str, str]) -> None:
    wire = Wire(model_list(Protocol.MESSAGES, models), kind=JSON)
    with anthropic_client(wire) as client:
        listed = list(client.models.list(limit=1000))
    assert [model.id for model in listed] == list(models)
    assert all(model.created_at.year == 1970 for model in listed)
    assert wire.asked == 1
