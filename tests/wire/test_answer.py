from cachegate.guard.usage import Usage
from cachegate.wire.answer import Answer


def test_the_whole_text_is_its_deltas() -> None:
    assert Answer("a1", "m", 0, ("Hel", "", "lo"), Usage(), 2).text == "Hello"
    assert Answer("a1", "m", 0, (), Usage(), 0).text == ""
