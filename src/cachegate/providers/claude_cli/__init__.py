"""Claude through the person's own Claude Code: one process of its program for each caller's conversation."""
