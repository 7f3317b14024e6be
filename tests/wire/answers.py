"""Answers for the writers to write, in every state of knowledge about their usage."""

from hypothesis import strategies as st

from cachegate.guard.usage import Usage
from cachegate.wire.answer import Answer

KNOWN = Usage(131_072, 65_536, 1_024)
STATES = (
    Usage(), Usage(9), Usage(9, 0), Usage(9, 4), Usage(9, None, 4), Usage(9, 4, 5), Usage(9, 9, 0), Usage(9, 0, 9),
    KNOWN,
)  # fmt: skip


def answer(usage: Usage = KNOWN, *deltas: str, refused: bool = False) -> Answer:
    return Answer("a1", "synthetic/cold", 1_795_906_800, deltas or ("Hel", "lo"), usage, 7, refused)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    """Draw counts that fit together: what was read and written is a part of the whole."""
    read, write, fresh = (draw(st.integers(0, 10**7)) for _ in range(3))
    known = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    total = max(1, read + write + fresh)
    counts = [count if told else None for count, told in zip((total, read, write), known, strict=True)]
    return Usage(*counts)


answers = st.builds(
    Answer,
    answer_id=st.text("0123456789abcdef", min_size=1, max_size=32),
    model=st.text(min_size=1, max_size=9),
    created_s=st.integers(0, 2**33),
    deltas=st.lists(st.text(max_size=9), max_size=4).map(tuple),
    usage=usages(),
    output_tokens=st.integers(0, 10**6),
    refused=st.booleans(),
)
