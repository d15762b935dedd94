"""Ours: two configs of 80 MB hop at each unit between two nodes, until the time is over.

python pausing_ours.py SECONDS
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from growing import growth, watched
from our_recipes import pausing
from ours import started, visits


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ours-") as name:
        home = Path(name)
        with watched() as seen:
            if code := started(pausing(float(sys.argv[1])), home, SLEEP="0").wait():
                raise SystemExit(code)
        found = visits(home)
    began, ended = (f(visit["started"] for visit in found) for f in (min, max))
    pauses = len(found) / (ended - began) * 60
    print(json.dumps({"began": began, "pauses": pauses, "growth_bytes": growth(seen, began, ended)}))


if __name__ == "__main__":
    main()
