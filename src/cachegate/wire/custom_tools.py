"""Freeform tools where a protocol has none: a function whose only argument is the text.

Codex's `apply_patch` takes a patch and no JSON. A model behind a protocol without such tools gets a function with one
string, told in its description what the string must look like; what it writes is unwrapped again on the way back.
Wrapping is deterministic, so that a call in the history has the same bytes in every request.
"""

import re
from dataclasses import replace

from cachegate.wire.body import decode, encode
from cachegate.wire.hub import Json, Tool

ARGUMENT = "input"
"""The one argument of a wrapped tool."""

SCHEMA: Json = {
    "type": "object",
    "properties": {ARGUMENT: {"type": "string"}},
    "required": [ARGUMENT],
    "additionalProperties": False,
}

_CUT = re.compile(r'\s*\{\s*"' + ARGUMENT + r'"\s*:\s*"(?P<text>(?:[^"\\]++|\\.)*+)', re.DOTALL)
_HALF_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?$")
_HALF_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}$")
"""An emoji is two escapes; the first alone is no character."""


def as_function(tool: Tool) -> Tool:
    """Return the tool as a function; one that is a function already as it is."""
    if not tool.ref.custom:
        return tool
    ref = replace(tool.ref, custom=False)
    return replace(tool, ref=ref, description=_description(tool), schema=SCHEMA, strict=None, grammar=None)


def wrap(text: str) -> str:
    """Return a freeform input as the arguments of the function."""
    return encode({ARGUMENT: text}).decode()


def unwrap(arguments: str) -> str:
    """Return the freeform input in the arguments of the function.

    Models fumble: arguments that were cut short give what is there of the text, and a model that wrote the text itself
    instead of JSON meant that text.
    """
    value = decode(arguments.encode("utf-8", "replace"))
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        texts = [text for text in value.values() if isinstance(text, str)]
        wrapped = value.get(ARGUMENT)
        if isinstance(wrapped, str):
            return wrapped
        return texts[0] if len(value) == 1 and texts else arguments
    return _cut_short(arguments)


def _cut_short(arguments: str) -> str:
    found = _CUT.match(arguments)
    if found is None:
        return arguments
    text = _HALF_PAIR.sub("", _HALF_ESCAPE.sub("", found["text"]))
    value = decode(b'"' + text.encode("utf-8", "replace") + b'"')
    return value if isinstance(value, str) else arguments


def _description(tool: Tool) -> str | None:
    """Append the grammar to the description: the only place left that the model reads."""
    grammar = _grammar(tool.grammar) if tool.grammar is not None else ""
    parts = [part for part in (tool.description, grammar) if part]
    return "\n\n".join(parts) or None


def _grammar(grammar: Json) -> str:
    definition, syntax = grammar.get("definition"), grammar.get("syntax")
    if not isinstance(definition, str):
        return ""
    named = f" ({syntax})" if isinstance(syntax, str) else ""
    return f"`{ARGUMENT}` must be text that matches this grammar{named}:\n{definition}"
