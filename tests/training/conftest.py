"""``units_on_ranks`` is importable, also in rank processes."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
