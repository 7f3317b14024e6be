"""Protocols as bytes and values: who asks, what for, and what an upstream's answer says.

Law of this room: pure. It knows the names of JSON fields, and no other room does. Of the gateway it imports
`guard.usage` and `errors` only; it never awaits, never opens anything, and never reads a clock.
"""
