"""Draws ``design/layers.svg`` from the imports: ``python docs/layers.py``.

A row for each layer of the contract in ``pyproject.toml``, a box for each folder, an arrow to each folder
that it imports and that no other of its imports leads to.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs/design/layers.svg"
PACKAGE = "cerebro_elastic"
_WIDTH, _ROW, _BOX = 1080, 66, 30
_STYLE = """
    rect { fill: #f4f6fa; stroke: #8a94a6; } text { fill: #1d2733; }
    line { stroke: #8a94a6; marker-end: url(#head); } marker path { fill: #8a94a6; }
    @media (prefers-color-scheme: dark) {
      rect { fill: #202733; } text { fill: #e6eaf0; } line { stroke: #a5afbd; }
    }
"""


def layers() -> list[list[str]]:
    """The folders and modules at the top of the package, row by row, as the contract has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    order = next(each["layers"] for each in contracts if each.get("containers") == [PACKAGE])
    return [[name.strip() for name in layer.split("|")] for layer in order]


def imports() -> dict[str, set[str]]:
    """What each folder or module at the top imports, without what those that it imports lead to."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    tops = {module.rpartition(".")[2]: module for module in graph.find_children(PACKAGE)}
    for module in tops.values():
        graph.squash_module(module)
    direct = {
        name: {used.rpartition(".")[2] for used in graph.find_modules_directly_imported_by(module)}
        & tops.keys() - {name}
        for name, module in tops.items()
    }
    return {
        name: {to for to in used if not any(to in _led_to(other, direct) for other in used - {to})}
        for name, used in direct.items()
    }


def _led_to(name: str, direct: Mapping[str, set[str]]) -> set[str]:
    """All that ``name`` imports, by whatever way."""
    seen, left = set[str](), [name]
    while left:
        new = direct[left.pop()] - seen
        seen |= new
        left += new
    return seen


def picture() -> str:
    """The SVG."""
    return "\n".join(_svg(layers(), imports())) + "\n"


def _svg(rows: list[list[str]], arrows: Mapping[str, set[str]]) -> Iterator[str]:
    height = len(rows) * _ROW
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="system-ui, '
        'sans-serif" font-size="13" text-anchor="middle" role="img" aria-label="Folders of the package in '
        'layers, with arrows to what they import: all lead down.">'
    )
    yield f"  <style>{_STYLE}  </style>"
    yield (
        '  <defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="6" markerHeight="6" '
        'orient="auto"><path d="M0 0 L10 5 L0 10 z"/></marker></defs>'
    )
    places = {
        name: ((at + 0.5) * _WIDTH / len(row), number * _ROW + 10)
        for number, row in enumerate(rows)
        for at, name in enumerate(row)
    }
    for name, used in sorted(arrows.items()):
        for to in sorted(used):
            if name in places and to in places:
                (x, y), (to_x, to_y) = places[name], places[to]
                yield f'  <line x1="{x:.0f}" y1="{y + _BOX}" x2="{to_x:.0f}" y2="{to_y}"/>'
    for name, (x, y) in places.items():
        width = max(9 * len(name), 60) + 14
        yield f'  <rect x="{x - width / 2:.0f}" y="{y}" width="{width}" height="{_BOX}" rx="6"/>'
        yield f'  <text x="{x:.0f}" y="{y + 19}">{name}</text>'
    yield "</svg>"


if __name__ == "__main__":
    PICTURE.write_text(picture())
