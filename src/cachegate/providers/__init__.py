"""Those who answer: one file each, a variant is a row in `presets.py`.

Law of this room: I/O is allowed; a provider turns a `Call` into a `Head` and `Piece`s in the client's protocol, with
what it observed beside them. A provider never sees the guard, and the guard never sees a provider.
"""
