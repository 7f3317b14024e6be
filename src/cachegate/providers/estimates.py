"""A token count where the provider has none: a fixed rate, called an estimate, and unknown to the guard."""

from cachegate.providers.base import Head, Piece
from cachegate.wire.facts import InferenceRequest
from cachegate.wire.protocols import DIALECTS

BYTES_PER_TOKEN = 4
ESTIMATED = ("x-cachegate-estimate", "true")


def estimated(request: InferenceRequest) -> tuple[Head, Piece]:
    """Return the answer to a request for a count."""
    tokens = -(-request.facts.input_bytes // BYTES_PER_TOKEN)
    body = DIALECTS[request.protocol].writer.count(tokens)
    headers = (("content-type", "application/json"), ESTIMATED, ("content-length", str(len(body))))
    return Head(200, headers), Piece(body)
