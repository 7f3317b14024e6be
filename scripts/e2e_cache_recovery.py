#!/usr/bin/env python3
"""Verifies that a real client recovers from a cache stop only when its person asks for it; see docs/recovery.md."""

import sys

from cache_recovery.verify import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
