"""A language model of half a megabyte for a real llama.cpp: a GGUF file with random, seeded weights.

It talks rubbish, one character a token, so that texts and tokens can be counted against each other and a text becomes
the same tokens whether the model wrote it or a client sends it back. Some dimensions of its hidden state are kept out
of its layers: one is constant, so that bytes that are no text never come up, and the others say which token it stands
on, so that a script can tell it how to go on from there.
"""

import random
import struct
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path

CONTEXT_TOKENS = 65_536

_WIDTH, _HEADS, _LAYERS, _INNER = 64, 4, 2, 128
_LINE_END = "<0x0A>"
_THOUGHT_END, _CALL, _END = "</think>", "<tool_call>", "<|im_end|>"
_SPACE = "\u2581"
_WORDS = [_SPACE, *(chr(code) for code in range(33, 127)), _THOUGHT_END, _CALL]
_TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *_WORDS, "<|im_start|>", _END]
_UNKNOWN, _BEGIN, _LAST = 0, 1, len(_TOKENS) - 1
_NORMAL, _KIND_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6
_SET = 8.0
"""Value of a kept dimension that is set; what the random ones hold is small beside it."""
_NEVER, _SURELY = -20.0, 40.0
_ALIGNMENT_BYTES = 32

Script = Mapping[str, tuple[str, ...]]
"""What follows a token: the first of these that llama.cpp's grammar allows."""

BABBLES: Script = {}
"""It never ends by itself."""
THOUGHT, TEXT = "Hm", "Ok"
ANSWERS: Script = {_LINE_END: ("O",), "O": ("k",), "k": (_END, _CALL), "}": ("<",), ">": (_END,)}
"""It says something and ends; where a tool must be called, with one call."""
THINKS: Script = {**ANSWERS, _LINE_END: ("H",), "H": ("m",), "m": (_THOUGHT_END,), _THOUGHT_END: ("O",)}
"""Before that, it thinks."""
OPENING = "<think>\n"
"""What is in front of each of its answers, but not of one whose thoughts are not sent back."""
_KEPT = 1 + len(THINKS)

_TEMPLATE = """\
{%- macro turn(role, text) %}{{- '<|im_start|>' + role + '\\n' + text + '<|im_end|>\\n' }}{%- endmacro %}
{%- set told = messages[0].content if messages[0].role == 'system' else '' %}
{%- if tools %}
{%- set listed %}{%- for tool in tools %}{{- tool | tojson + '\\n' }}{%- endfor %}{%- endset %}
{%- set told = told + '\\n<tools>\\n' + listed + '</tools>' %}
{%- endif %}
{%- if told %}{{- turn('system', told) }}{%- endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' }}
{%- if message.reasoning_content %}{{- '<think>\\n' + message.reasoning_content + '</think>' }}{%- endif %}
{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) }}
{{- '}</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}{{- turn('user', message.tool_call_id + ' returned ' + message.content) }}
{%- elif not (loop.first and message.role == 'system') %}{{- turn(message.role, message.content) }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}
"""
"""ChatML with thoughts, which stay, and tools. Calls have no spaces at their borders: `<tool_call>` begins them."""


def write_tiny_model(path: Path, script: Script) -> None:
    """Write the model."""
    tensors = list(_tensors(random.Random(7), script))
    template = _TEMPLATE if _THOUGHT_END in script else _TEMPLATE.replace("<think>\\n' }}{%- endif", "' }}{%- endif")
    fields = [*_architecture(), *_vocabulary(), _text("tokenizer.chat_template", template)]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields)) + b"".join(fields)
    at, body = 0, b""
    for name, dimensions, values in tensors:
        head += _string(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, 0, at)
        body += _aligned(values.tobytes())
        at = len(body)
    path.write_bytes(_aligned(head) + body)


def _tensors(dice: random.Random, script: Script) -> Iterator[tuple[str, tuple[int, ...], "array[float]"]]:
    def matrix(columns: int, rows: int, spread: float = 0.2) -> tuple[tuple[int, ...], "array[float]"]:
        return (columns, rows), array("f", (dice.gauss(0, spread) for _ in range(columns * rows)))

    def adding_to_random_dimensions(columns: int, rows: int) -> tuple[tuple[int, ...], "array[float]"]:
        size, values = matrix(columns, rows)
        return size, array("f", bytes(4 * columns * _KEPT)) + values[columns * _KEPT :]

    ones = ((_WIDTH,), array("f", [1.0] * _WIDTH))
    size, embedding = matrix(_WIDTH, len(_TOKENS), 1.0)
    for row, token in enumerate(_TOKENS):
        kept = [_SET, *(_SET if token == before else 0.0 for before in THINKS)]
        embedding[row * _WIDTH : row * _WIDTH + _KEPT] = array("f", kept)
    yield "token_embd.weight", size, embedding
    for layer in range(_LAYERS):
        yield f"blk.{layer}.attn_norm.weight", *ones
        for part in "qkv":
            yield f"blk.{layer}.attn_{part}.weight", *matrix(_WIDTH, _WIDTH)
        yield f"blk.{layer}.attn_output.weight", *adding_to_random_dimensions(_WIDTH, _WIDTH)
        yield f"blk.{layer}.ffn_norm.weight", *ones
        for part in ("gate", "up"):
            yield f"blk.{layer}.ffn_{part}.weight", *matrix(_WIDTH, _INNER)
        yield f"blk.{layer}.ffn_down.weight", *adding_to_random_dimensions(_INNER, _WIDTH)
    yield "output_norm.weight", *ones
    size, output = matrix(_WIDTH, len(_TOKENS), 0.5)
    for row, token in enumerate(_TOKENS):
        usual = 0.0 if token in _WORDS and len(token) == 1 else _NEVER
        output[row * _WIDTH : row * _WIDTH + _KEPT] = array("f", [usual, *_pulls(token, script)])
    yield "output.weight", size, output


def _pulls(token: str, script: Script) -> Iterator[float]:
    """How much a token wants to follow each one that a script can name."""
    for before in THINKS:
        wanted = script.get(before, ())
        yield _SURELY * (len(wanted) - wanted.index(token)) if token in wanted else 0.0


def _architecture() -> Iterator[bytes]:
    yield _text("general.architecture", "llama")
    sizes = {
        "context_length": CONTEXT_TOKENS,
        "embedding_length": _WIDTH,
        "block_count": _LAYERS,
        "feed_forward_length": _INNER,
        "attention.head_count": _HEADS,
        "attention.head_count_kv": _HEADS,
        "rope.dimension_count": _WIDTH // _HEADS,
    }
    for name, size in sizes.items():
        yield _number(f"llama.{name}", size)
    yield _field("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5))


def _vocabulary() -> Iterator[bytes]:
    words = [_NORMAL if len(word) == 1 else _USER_DEFINED for word in _WORDS]
    kinds = [_KIND_UNKNOWN, _CONTROL, _CONTROL, *[_BYTE] * 256, *words, _CONTROL, _CONTROL]
    yield _text("tokenizer.ggml.model", "llama")
    yield _array("tokenizer.ggml.tokens", 8, b"".join(map(_string, _TOKENS)))
    yield _array("tokenizer.ggml.scores", 6, array("f", [0.0] * len(_TOKENS)).tobytes())
    yield _array("tokenizer.ggml.token_type", 5, array("i", kinds).tobytes())
    for name, token in {"unknown": _UNKNOWN, "bos": _BEGIN, "eos": _LAST}.items():
        yield _number(f"tokenizer.ggml.{name}_token_id", token)
    yield _field("tokenizer.ggml.add_bos_token", 7, b"\1")
    yield _field("tokenizer.ggml.add_space_prefix", 7, b"\0")


# --- GGUF's own spelling: little-endian numbers, each value behind its name and the number of its kind ---


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _field(name: str, kind: int, value: bytes) -> bytes:
    return _string(name) + struct.pack("<I", kind) + value


def _text(name: str, text: str) -> bytes:
    return _field(name, 8, _string(text))


def _number(name: str, number: int) -> bytes:
    return _field(name, 4, struct.pack("<I", number))


def _array(name: str, kind: int, values: bytes) -> bytes:
    return _field(name, 9, struct.pack("<IQ", kind, len(_TOKENS)) + values)


def _aligned(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT_BYTES)
