import json
from typing import Any

import pytest

from cachegate.wire.claude_cli.credentials import lent

SIGNED_IN = {"accessToken": "a", "expiresAt": 1, "scopes": ["user:inference"], "subscriptionType": "max"}


def test_the_refresh_token_stays_with_the_person() -> None:
    theirs = {"claudeAiOauth": {**SIGNED_IN, "refreshToken": "r"}, "mcpOAuth": {"server": {"accessToken": "other"}}}
    ours = lent(json.dumps(theirs).encode())
    assert ours is not None
    assert json.loads(ours) == {"claudeAiOauth": SIGNED_IN}


@pytest.mark.parametrize(
    "theirs", [{}, [], None, {"claudeAiOauth": None}, {"claudeAiOauth": {}}, {"claudeAiOauth": {"accessToken": ""}}]
)
def test_without_an_access_token_nobody_is_signed_in(theirs: Any) -> None:
    assert lent(json.dumps(theirs).encode()) is None
    assert lent(b"no json") is None
