"""The OpenAI Chat Completions protocol, as upstreams speak it. Pure, like all of `wire/`."""
