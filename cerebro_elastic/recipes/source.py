"""YAML with its line numbers, read as YAML 1.2 means it.

PyYAML speaks YAML 1.1, in which ``1e-4`` is a string, ``on`` is true and ``2024-01-01`` a date. A recipe is
full of learning rates, so here the core schema of YAML 1.2 (section 10.3.2) holds instead. ``<<``, which
merges a mapping into another, remains from YAML 1.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from cerebro_elastic.errors import RecipeError

Path: TypeAlias = tuple[str | int, ...]
"""A place in a recipe: keys and list indices from the top."""

_MOST_VALUES = 100_000
"""Values in a recipe, aliases written out. A few lines of aliases of aliases can produce billions."""

_MOST_LEVELS = 100
"""Lists and mappings inside one another."""


@dataclass(frozen=True)
class Source:
    """A recipe as it was written, with the places of its values for messages."""

    label: str
    """The place of values without a line, such as the file's name."""
    values: Mapping[str, Any]
    """The values by top-level key."""
    places: Mapping[Path, str] = field(default_factory=dict)
    """By path in ``values``: ``file:line``, or ``override``."""

    def where(self, path: Path) -> str:
        """The place of ``path``, or of the nearest enclosing value that was written down."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.places:
                return self.places[path[:end]]
        return self.label

    def override(self, overrides: Mapping[str, Any]) -> Source:
        """These values with others on top: a mapping is merged into its section, all else replaced."""
        values, places = dict(self.values), dict(self.places)
        for key, value in overrides.items():
            section = values.get(key)
            if isinstance(section, Mapping) and isinstance(value, Mapping):
                values[key] = {**section, **value}
                replaced: list[Path] = [(key, inner) for inner in value]
            else:
                values[key] = value
                replaced = [(key,)]
            for path in replaced:
                places = {at: place for at, place in places.items() if at[: len(path)] != path}
                places[path] = "override"
        return Source(self.label, values, places)


class _Loader(yaml.SafeLoader):
    """A safe loader with the implicit types of YAML 1.2."""


_Loader.yaml_implicit_resolvers = {}


_CORE_SCHEMA = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+0123456789."),
    ),
}
"""Type to its pattern and the characters that it may begin with; the first match holds."""

for _type, (_pattern, _first) in _CORE_SCHEMA.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_type}", re.compile(f"^(?:{_pattern})$"), _first)


def _construct_int(_: _Loader, node: yaml.ScalarNode) -> int:
    digits = node.value
    try:
        return int(digits, 0) if digits[:2] in ("0o", "0x") else int(digits)
    except ValueError:  # Python reads at most 4300 digits
        raise yaml.MarkedYAMLError(
            problem=f"a number of {len(digits)} digits", problem_mark=node.start_mark
        ) from None


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)


def read_yaml(text: str, label: str) -> Source:
    """Parse a recipe. Raises ``RecipeError`` for bad YAML, duplicate keys, values that are no mapping, and
    texts that expand to more than a recipe may have."""
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as exc:
        raise RecipeError(f"{label}: not valid YAML: {exc}; save it as plain UTF-8 text") from exc
    try:
        top = loader.get_single_node()
        if top is None:
            raise RecipeError(f"{label}: the recipe is empty; it needs at least `task`, `data` and `search`")
        places: dict[Path, str] = {}
        problems: list[str] = []
        _walk(top, (), label, places, problems)
        if problems:
            raise RecipeError("\n".join(problems))
        values = loader.construct_document(top)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        at = f"{label}:{mark.line + 1}" if mark else label
        raise RecipeError(f"{at}: not valid YAML: {exc.problem}; check quotes and indentation") from exc
    except yaml.YAMLError as exc:
        raise RecipeError(f"{label}: not valid YAML: {exc}") from exc
    except RecursionError:
        raise _too_deep(label) from None
    finally:
        loader.dispose()
    if not isinstance(values, dict):
        raise RecipeError(f"{label}: a recipe is a mapping of keys, this is a {type(values).__name__}")
    return Source(label, values, places)


def read_value(name: str, text: str) -> Any:
    """The value ``name``, written as in a recipe. Raises ``RecipeError``."""
    try:
        return read_yaml(f"value: {text}", name).values.get("value")
    except RecipeError as exc:
        raise RecipeError(
            f"{name} is {text!r}, which is no value: write it as in a recipe, e.g. 0.01"
        ) from exc


def _walk(node: yaml.Node, path: Path, label: str, places: dict[Path, str], problems: list[str]) -> None:
    """Note the place of every value under ``node``, and each key that is written twice or is no string."""
    if len(path) > _MOST_LEVELS:  # also an alias inside its own value
        raise _too_deep(f"{label}:{node.start_mark.line + 1}")
    if len(places) > _MOST_VALUES:
        raise RecipeError(
            f"{label}:{node.start_mark.line + 1}: over {_MOST_VALUES:,} values, with aliases "
            "(*name) written out: write fewer, or use a distribution such as {uniform: [0, 1]} for a list"
        )
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            places[(*path, index)] = f"{label}:{item.start_mark.line + 1}"
            _walk(item, (*path, index), label, places, problems)
    elif isinstance(node, yaml.MappingNode):
        _merge(node, label)
        for key, item in node.value:
            place, inner = f"{label}:{key.start_mark.line + 1}", (*path, str(key.value))
            if key.tag != "tag:yaml.org,2002:str":
                problems.append(f"{place}: a key must be a string, got {key.value!r}; put it in quotes")
            elif inner in places:
                problems.append(f"{place}: {key.value!r} appears twice, first at {places[inner]}; remove one")
            places[inner] = place
            _walk(item, inner, label, places, problems)


def _merge(node: yaml.MappingNode, label: str) -> None:
    """Replace ``<<`` by the keys of the mapping that it names, except for keys that are written here."""
    own, merged = [], dict[str, tuple[yaml.Node, yaml.Node]]()
    for key, item in node.value:
        if key.value != "<<" or key.style is not None:  # in quotes it is a key like others
            own.append((key, item))
            continue
        for mapping in item.value if isinstance(item, yaml.SequenceNode) else [item]:
            if not isinstance(mapping, yaml.MappingNode):
                raise RecipeError(
                    f"{label}:{key.start_mark.line + 1}: `<<` merges a mapping, or a list of mappings, such "
                    "as *name; or put it in quotes"
                )
            _merge(mapping, label)
            for pair in mapping.value:
                merged.setdefault(str(pair[0].value), pair)
    written = {str(key.value) for key, _ in own}
    node.value = [pair for name, pair in merged.items() if name not in written] + own


def _too_deep(place: str) -> RecipeError:
    return RecipeError(
        f"{place}: lists and mappings are nested more than {_MOST_LEVELS} deep: look for an alias (*name) "
        "inside its own value, and for brackets that do not close"
    )
