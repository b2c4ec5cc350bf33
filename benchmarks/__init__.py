"""Long measurements, each a command: `python -m benchmarks.NAME`, from the repository's root."""

import sys
from pathlib import Path

# Some ask what the tests of a wing have: pairs of answers, processes that were left behind.
sys.path += [str(tests) for tests in sorted(Path(__file__).parents[1].glob("packages/*/tests"))]
