"""Claude Code's program: the lines that it speaks, and what a conversation looks like as its transcript."""
