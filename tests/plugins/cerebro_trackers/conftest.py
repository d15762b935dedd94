"""The records of runs that trackers get are those of the tests of runs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "runs"))
