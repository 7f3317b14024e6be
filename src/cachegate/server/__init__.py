"""HTTP in, HTTP out.

Law of this room: it reads requests, writes answers and says why an answer ended. It decides nothing about caches,
providers or models; `road.serve_one` does the rest. The supervisor, whose workers serve, knows nothing of requests.
"""
