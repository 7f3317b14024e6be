"""How chats are made."""

import pytest

from cachegate.sdk import AsyncClient, Tool


async def test_each_chat_has_an_id_of_its_own_or_the_one_it_was_given() -> None:
    async with AsyncClient() as client:
        assert client.chat("m").id != client.chat("m").id
        assert client.chat("m", id="my chat").id == "my chat"


@pytest.mark.parametrize("given", ["", " x", "x\n", "é", "x" * 257])
async def test_an_id_that_no_header_can_hold_is_refused(given: str) -> None:
    async with AsyncClient() as client:
        with pytest.raises(ValueError, match="printable ASCII"):
            client.chat("m", id=given)


async def test_tools_of_one_name_are_refused() -> None:
    tool = Tool("t", "A tool.", {}, print)
    async with AsyncClient() as client:
        with pytest.raises(ValueError, match="named 't'"):
            client.chat("m", tools=[tool, tool])
