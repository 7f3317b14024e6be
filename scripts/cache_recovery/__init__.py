"""The recovery verification: a real client recovers from a cache stop, and only when its person asks for it.

Law of this room: `steps.py` is pure and says what must be seen; a driver does one act and tells what the client showed;
`play.py` brings both together and asks the gateway what reached the provider. What runs before the isolated environment
exists (`asked`, `children`, `environment`, `candidate`, `verify`, `report`) needs the standard library only.
"""
