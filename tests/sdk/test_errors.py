"""The tree of errors is the one that its first lines draw."""

from cachegate.sdk import CachegateError, ProviderError, errors


def test_the_tree_is_the_one_that_is_drawn() -> None:
    drawn = [line.split("─ ")[1].split()[0] for line in (errors.__doc__ or "").splitlines() if "─ " in line]
    assert drawn == [kind.__name__ for kind in CachegateError.__subclasses__()]


def test_an_error_says_its_status_and_code_and_no_more_than_it_knows() -> None:
    assert str(ProviderError("Slow down.", 429, "rate_limit")) == "Slow down. (429, rate_limit)"
    assert str(ProviderError("Slow down.")) == "Slow down."
