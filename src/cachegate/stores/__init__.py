"""Where the guard's entries live.

Law of this room: `apply(key, change)` is atomic per key, and `change` is pure and may run twice. No policy stands here
beyond which entry goes when there are too many.
"""
