"""The OpenAI Responses protocol. Pure, like all of `wire/`."""
