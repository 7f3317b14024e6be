"""A process that is a llama.cpp server: `python llamacpp_program.py SETTINGS`, where SETTINGS is a JSON object.

It prints its address when it listens, and ends with its standard input. The server is llama.cpp's own, with its own
HTTP routes; the package xllamacpp brings it along as an extension of Python.
"""

import importlib
import json
import sys


def main() -> None:
    """Serve one model until nobody holds the other end of standard input."""
    settings = json.loads(sys.argv[1])
    native = importlib.import_module("xllamacpp")
    parameters = native.CommonParams()
    parameters.model.path = settings["model"]
    parameters.n_ctx = settings["context_tokens"]
    parameters.n_parallel = settings["slots"]
    # One cache for all slots: they can fill it for each other.
    parameters.kv_unified = settings["slots"] > 1
    # Only what stands in a slot is cached, so that a test decides what is.
    parameters.cache_ram_mib = 0
    # The likeliest token always, so that every run says the same.
    parameters.sampling.temp = 0.0
    parameters.cpuparams.n_threads = 1
    parameters.warmup = False
    parameters.ui = False
    parameters.endpoint_metrics = True
    server = native.Server(parameters)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
