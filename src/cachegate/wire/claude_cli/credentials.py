"""The file in which Claude Code keeps a person's sign-in."""

from cachegate.wire.body import decode, encode


def lent(credentials: bytes) -> bytes | None:
    """Return a person's credentials as they may be lent to a session; None when nobody is signed in.

    The refresh token stays behind. It is good for one use: a session that used it would sign the person out.
    """
    fields = decode(credentials)
    signed_in = fields.get("claudeAiOauth") if isinstance(fields, dict) else None
    if not isinstance(signed_in, dict) or not signed_in.get("accessToken"):
        return None
    return encode({"claudeAiOauth": {name: value for name, value in signed_in.items() if name != "refreshToken"}})
