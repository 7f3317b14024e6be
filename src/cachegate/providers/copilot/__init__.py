"""GitHub Copilot through its own runtime: sessions that live as long as their callers' conversations."""
