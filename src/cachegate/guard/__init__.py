"""The cache guard: decides whether a request may reach a provider.

Law of this room: pure. Values in, values out, `now_ms` passed in. No clock, no I/O, no asyncio, no JSON, no
logging, and no name of a provider or a protocol. Rule numbers (R1 ... R24) are those of `docs/guard.md`.
"""
