"""Draws the figures of the pages "Evidence", and fills in their tables, from what experiments have written.

    python benchmarks/evidence/figures.py [--size full] [NAME ...]

The full size fills in docs/evidence. The reduced size leaves it alone: it fills in a copy of the pages in
build/evidence. Every experiment has a function ``show``.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import measuring
from pages import DOCS, Pages, between_marks

NOT_MEASURED = "Not measured at this size."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--size", choices=list(measuring.RESULTS), default="reduced")
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all experiments with results")
    asked = parser.parse_args()
    pages = Pages.of(asked.size)
    if asked.size == "reduced":
        copy_pages(pages)
    incomplete = show(pages, asked.names or [file.stem for file in results(pages)])
    print(pages.folder / "index.md")
    if incomplete:
        raise SystemExit(f"not shown, since results are missing: {', '.join(incomplete)}")


def results(pages: Pages) -> list[Path]:
    """The files of the experiments that have been run."""
    return sorted(pages.results.glob("*.json"))


def show(pages: Pages, names: Sequence[str]) -> list[str]:
    """Fill in what experiments have found; the names of those of which a part is missing."""
    incomplete = []
    for name in names:
        try:
            import_module(name).show(pages)
        except KeyError as missing:
            incomplete.append(f"{name} ({missing})")
    pages.fill("index.md", "measured", measured(pages))
    return incomplete


def copy_pages(pages: Pages) -> None:
    """Copy the recorded pages without their pictures, and without what is between their marks."""
    pages.folder.mkdir(parents=True, exist_ok=True)
    for picture in pages.folder.glob("*.svg"):
        picture.unlink()
    made = [each for file in results(pages) for each in conditions(file)]
    note = (
        f"> **The tables and pictures of this page are those of a reduced run ({joined(made, 'date')}, "
        f"{joined(made, 'cores')} cores). The text speaks of the recorded run, which is of size full.**"
    )
    elsewhere = os.path.relpath(DOCS.parent, pages.folder)
    for page in DOCS.glob("*.md"):
        text = page.read_text().replace("](../", f"]({elsewhere}/")
        title, _, rest = (between_marks(text, NOT_MEASURED) or text).partition("\n")
        (pages.folder / page.name).write_text(f"{title}\n\n{note}\n{rest}")


def measured(pages: Pages) -> str:
    """A table: when and with what each experiment was run, and how quiet the machine was."""
    rows = []
    for file in results(pages):
        kept, made = json.loads(file.read_text()), conditions(file)
        arms = [arm for result in kept["results"].values() for arm in in_rounds(result["values"])]
        rounds = sorted({min(map(len, arms)), max(map(len, arms))}) if arms else []
        quiet = [usage["quiet"] for arm in arms for usage in arm]
        rows.append(
            [
                f"`{file.stem}.py`",
                *(joined(made, name) for name in ("date", "cores", "torch")),
                kept["size"],
                " to ".join(map(str, rounds)),
                f"{sum(quiet)} of {len(quiet)}" if quiet else "",
            ]
        )
    head = ["experiment", "measured", "cores", "torch", "size", "rounds", "began in a quiet moment"]
    return measuring.table(head, rows)


def conditions(file: Path) -> list[Mapping[str, Any]]:
    """What each of the results in a file was made with."""
    return [result["made"] for result in json.loads(file.read_text())["results"].values()]


def joined(made: Sequence[Mapping[str, Any]], name: str) -> str:
    """All different values of one condition, as far as they were noted."""
    return ", ".join(sorted({str(each[name]) for each in made if name in each}))


def in_rounds(values: Any) -> Iterator[Sequence[Mapping[str, Any]]]:
    """The measurements of each arm: those whose beginning was watched."""
    if _is_watched(values):
        yield [values]
    elif isinstance(values, list) and any(map(_is_watched, values)):
        yield values
    elif isinstance(values, dict):
        for value in values.values():
            yield from in_rounds(value)


def _is_watched(values: Any) -> bool:
    return isinstance(values, dict) and "quiet" in values


if __name__ == "__main__":
    main()
