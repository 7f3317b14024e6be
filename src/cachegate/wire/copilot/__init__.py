"""GitHub Copilot's own runtime: what a conversation looks like as the events of a session, both ways."""
