"""A record can hold nothing but numbers, fixed words and configured names."""

from dataclasses import fields

from cachegate.observe.record import EVENT, GuardRecord, Record


def test_a_record_has_no_place_for_a_body_a_header_or_an_id_of_the_caller_r24() -> None:
    assert {field.name for field in fields(GuardRecord)} == {
        "key", "mode", "outcome", "reason", "count", "cause", "item", "items", "gap_s", "provider_cause",
    }  # fmt: skip
    assert {field.name for field in fields(Record)} == {
        "request_id", "at_s", "path", "status", "ending", "duration_ms", "provider", "model", "usage", "detail",
        "rebuilt", "guard",
    }  # fmt: skip
    assert EVENT == "context_cache_guard"
