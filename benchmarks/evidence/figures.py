"""Draws the figures of the pages "Evidence", and fills in their tables, from what experiments have written.

python benchmarks/evidence/figures.py [NAME ...]

Every experiment that has results has a function ``show``.
"""

from __future__ import annotations

import argparse
from importlib import import_module

from measuring import HERE, RESULTS


def main() -> None:
    measured = sorted(
        {file.stem for file in RESULTS.glob("*.json")} & {file.stem for file in HERE.glob("*.py")}
    )
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=measured, help=", ".join(measured))
    for name in parser.parse_args().names:
        import_module(name).show()


if __name__ == "__main__":
    main()
