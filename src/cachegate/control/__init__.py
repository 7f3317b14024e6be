"""Chats that the gateway itself hosts, for clients of the control socket.

Law of this room: it hosts chats, and every inference of theirs goes over `road.serve_one`, past the guard. It knows no
HTTP server and no WebSocket: a client is a `Listener` that is told frames. `rpc.py`, `params.py`, `thread.py`,
`event_log.py`, `turn_request.py`, `said.py` and `stored.py` are pure: values in, values out.
"""
