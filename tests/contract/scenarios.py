"""Ten turns with tools for every client: what the model answers, and what the client adds to it."""

from dataclasses import dataclass, replace

from cachegate.wire.facts import Protocol
from contract.conversations import PIXEL, Result
from contract.scripts_played import Answer, Called, Spoken, Thought

_PATCH = '*** Begin Patch\n*** Update File: src/main.py\n@@\n-a = 1\n+a = "zwei"  # é\n*** End Patch\n'


@dataclass(frozen=True, slots=True)
class Step:
    """One answer, and what the client adds before it asks again."""

    answer: Answer
    results: tuple[Result, ...] = ()
    question: str | None = None
    note: str | None = None


def _sealed(number: int, part: int = 0) -> str:
    return f"EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrk{number:02}{part:02}dsKj+/8=="


def _step(number: int, *parts: Thought | Spoken | Called, question: str | None = None, note: str | None = None) -> Step:
    thoughts = iter(range(9))
    sealed = tuple(
        replace(part, sealed=_sealed(number, next(thoughts))) if isinstance(part, Thought) else part for part in parts
    )
    answer = Answer(number, sealed)
    results = tuple(_result(number, place, called) for place, called in enumerate(answer.calls))
    return Step(answer, results, question, note)


def _result(number: int, place: int, called: Called) -> Result:
    """A result in words; a picture where one was asked for, and an error now and then."""
    if "png" in called.arguments:
        return Result("Here it is.", PIXEL)
    return Result(f"exit 0\nline {number}.{place} \U0001f642\r\n", is_error=number % 4 == 3)


_THINK, _MORE = Thought("I should look at the log first.", ""), Thought("Now the other file.", "")
_SILENT, _REDACTED = Thought("", ""), Thought("", "", redacted=True)

CODEX = (
    _step(1, _THINK, Spoken("I'll look."), Called("shell", '{"command":["bash","-lc","ls"]}')),
    _step(2, _MORE, Called("shell", '{"command": ["rg", "é"]}'), Called("read_file", '{"path":"a.py"}')),
    _step(3, _SILENT, Called("apply_patch", _PATCH)),
    _step(4, Spoken("One more."), Called("view_image", '{"path":"a.png"}'), question="Wait, look at b.py too."),
    _step(
        5,
        _THINK,
        Called("spawn_agent", '{"prompt":"Test it."}'),
        Called("apply_patch", _PATCH),
        Called("shell", '{"command":["make"]}'),
    ),
    _step(6, _MORE, Spoken("All done."), question="Thanks. And now the docs."),
    _step(7, Called("update_plan", '{"plan":[{"step":"docs","status":"pending"}]}'), note="<tools>New tools</tools>"),
    _step(8, _THINK, Called("shell", '{"command":["cat","README.md"]}'), Called("wait", '{"seconds":2.50}')),
    _step(9, _REDACTED, Spoken("Reading."), Called("read_file", '{"path":"docs/ü.md"}')),
    _step(10, _MORE, Spoken("Finished."), question="Good."),
)
CLAUDE = (
    _step(1, _THINK, Spoken("I'll look."), Called("Bash", '{"command": "ls -l"}'), note="Deferred tools: WebFetch"),
    _step(2, _MORE, Called("Read", '{"file_path":"/srv/é.py"}'), Called("Read", '{"file_path":"b.py","limit":10}')),
    _step(3, _SILENT, Called("Edit", '{"file_path":"a","old_string":"x","new_string":""}')),
    _step(4, Called("Read", '{"file_path":"a.png"}'), question="Wait, look at b.py too."),
    _step(5, _THINK, Spoken("Now: "), _MORE, Called("Bash", '{"command":"make"}'), Called("Bash", '{"command":"id"}')),
    _step(6, _MORE, Spoken("All done."), question="Thanks. And now the docs.", note="Effort is now high."),
    _step(7, Called("create_issue", '{"title":"Docs"}'), Called("Bash", "{}")),
    _step(8, _THINK, Called("Bash", '{"command":"cat README.md"}')),
    _step(9, _REDACTED, Spoken("Reading."), Called("Read", '{"file_path":"docs/ü.md"}')),
    _step(10, _MORE, Spoken("Finished."), question="Good."),
)
OPENCODE = (
    _step(1, _THINK, Spoken("I'll look."), Called("bash", '{"command": "ls -l"}')),
    _step(2, _MORE, Called("read", '{"filePath":"/srv/é.py"}'), Called("read", '{"filePath":"b.py"}')),
    _step(3, _SILENT, Called("edit", '{"filePath":"a","newString":"\\u00e9"}')),
    _step(4, Called("bash", '{"command":"id"}'), question="Wait, look at b.py too."),
    _step(5, _THINK, Spoken("Now: "), _MORE, Called("bash", '{"command":"make"}'), Called("bash", '{"command":"w"}')),
    _step(6, _MORE, Spoken("All done."), question="Thanks. And now the docs."),
    _step(7, Called("bash", "{}"), note="A new rule."),
    _step(8, _THINK, Called("bash", '{"command":"cat README.md"}')),
    _step(9, _REDACTED, Spoken("Reading."), Called("read", '{"filePath":"docs/ü.md"}')),
    _step(10, _MORE, Spoken("Finished."), question="Good."),
)
SCENARIOS = {Protocol.RESPONSES: CODEX, Protocol.MESSAGES: CLAUDE, Protocol.CHAT: OPENCODE}
FIRST_QUESTION = "Fix the build, please."
