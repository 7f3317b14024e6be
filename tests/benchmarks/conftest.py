"""The benchmarks stand beside the package, at the root of the repository, and are no part of it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
