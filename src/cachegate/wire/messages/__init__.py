"""The Anthropic Messages protocol. Pure, like all of `wire/`."""
