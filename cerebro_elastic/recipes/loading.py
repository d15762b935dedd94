"""From a file, a mapping or another recipe to a checked ``Recipe``; all problems in one error."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from cerebro_elastic.errors import RecipeError, did_you_mean
from cerebro_elastic.recipes.fields import Section
from cerebro_elastic.recipes.partitions import choose
from cerebro_elastic.recipes.schema import Recipe, section_type, sections_with
from cerebro_elastic.recipes.source import Source, read_yaml
from cerebro_elastic.recipes.tasks import task_type
from cerebro_elastic.system.files import here, redacted

_EXPECTED = {
    "bool_type": "true or false, without quotes",
    "float_type": "a number without a unit or quotes, such as 0.5",
    "int_type": "a whole number without a unit or quotes, such as 8",
    "int_from_float": "a whole number",
    "model_type": "a mapping, `key: value`",
    "dict_type": "a mapping, `key: value`",
    "mapping_type": "a mapping, `key: value`",
    "string_type": "text, in quotes if it looks like a number",
    "tuple_type": "a list, [a, b]",
}
"""pydantic's messages in words of Python, in words of YAML."""

_FIRST_KEYS = {"objective": "metric", "data": "source", "search": "method"}
"""By section, the key that a lone text is likely to be the value of."""


def load_recipe(
    recipe: str | Path | Mapping[str, Any] | Recipe, *, root: str | Path | None = None, **overrides: Any
) -> Recipe:
    """Read and check a recipe.

    Args:
        recipe: A YAML file, a mapping, or another recipe.
        root: The folder of users' modules and relative paths, by default the file's folder (the working
            directory for a mapping).
        **overrides: Values that replace top-level keys; a mapping is merged into its section key by key.

    Raises:
        RecipeError: The recipe is wrong. The message has a line for each problem: file and line, value, rule
            and remedy.

    Example:
        >>> recipe = load_recipe("sweep.yaml", epochs=4, data={"batch_size": 10})
        >>> recipe.epochs, recipe.data.batch_size, recipe.data.partitions
        (4, 10, 2)
    """
    source, folder = _read(recipe)
    folder = Path(here(str(root))) if root is not None else folder
    source = source.override(overrides)
    source = replace(source, values=_completed(source.values, folder))
    try:
        checked = Recipe.model_validate(source.values)
        if (choice := choose(checked, folder)) is not None:
            checked = Recipe.model_validate(source.override(choice.values).values)
    except ValidationError as exc:
        raise RecipeError("\n".join(_lines(exc, source))) from exc
    return checked.placed(folder, source, choice)


def load_recipe_of(recorded: Mapping[str, Any], recipe: Recipe) -> Recipe:
    """The ``recipe`` with the ``recorded`` values of its run where it leaves them open: numbers of nodes,
    partitions and replicas."""
    values = {"nodes": recorded["nodes"]} if recipe.nodes.auto else {}
    if recipe.choice is not None and "partitions" in recorded["data"]:
        values |= {key: recorded[key] for key in recipe.choice.values if key in recorded}
        values["data"] = {"partitions": recorded["data"]["partitions"]}
    return load_recipe(recipe, **values) if values else recipe


def _completed(values: Mapping[str, Any], root: Path) -> Mapping[str, Any]:
    """The values, with those of files that the task names."""
    task = values.get("task")
    kind = task.get("kind") if isinstance(task, Mapping) else None
    return values if kind is None else task_type(kind).completed(values, root)


def _read(recipe: str | Path | Mapping[str, Any] | Recipe) -> tuple[Source, Path]:
    """The recipe as written, and its folder."""
    if isinstance(recipe, Recipe):
        return replace(recipe.source, values=_given(recipe)), recipe.root
    if isinstance(recipe, Mapping):
        return Source("recipe", {"name": "run", **recipe}), Path.cwd()
    path = Path(recipe).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8 text"
        raise RecipeError(
            f"{path}: cannot read the recipe: {reason}; give the path of a YAML file, or write one to begin "
            "with by `cerebro init`"
        ) from exc
    source = read_yaml(text, path.name)
    places = {
        ("name",): f"{path.name} (the recipe has no `name:`, so it has the file's name)",
        **source.places,
    }
    return Source(source.label, {"name": path.stem, **source.values}, places), path.resolve().parent


def _given(recipe: Recipe) -> Mapping[str, Any]:
    """All values of a recipe except those that were chosen for it."""
    values = recipe.resolved()
    if recipe.choice is not None:
        del values["data"]["partitions"]
        if recipe.choice.replicas is not None:
            del values["replicas"]
    return values


def _lines(error: ValidationError, source: Source) -> Iterable[str]:
    """One line for each problem: the place, the value, the rule, and the remedy."""
    task, search = (source.values.get(key) for key in ("task", "search"))
    kind = task.get("kind") if isinstance(task, Mapping) else None
    method = search.get("method", "grid") if isinstance(search, Mapping) else None
    for problem in error.errors(include_url=False):
        path = problem["loc"]
        name = ".".join(map(str, path)) or "the recipe"
        if problem["type"] == "extra_forbidden" and (sections := sections_with(str(path[-1]), kind, method)):
            said = f"unknown key {name!r}; write it {' or '.join(sections)}"
        else:
            said = describe_problem(problem, name, partial(section_type, path[:-1], kind, method))
        yield f"{source.where(path)}: {said}"


def describe_problem(problem: ErrorDetails, name: str, section: Callable[[], type[Section]]) -> str:
    """The fault of the value ``name``, or of a key that its ``section`` does not have."""
    context = problem.get("ctx", {})
    match problem["type"]:
        case "extra_forbidden":
            known = [field.alias or key for key, field in section().model_fields.items()]
            return f"unknown key {name!r}; {did_you_mean(str(problem['loc'][-1]), known)}"
        case "missing":
            return f"{name!r} is missing; add it"
        case "literal_error":
            rule = f"choices: {context['expected']}"
        case "value_error":
            rule = str(context["error"])
        case "model_type" if isinstance(problem["input"], str) and name in _FIRST_KEYS:
            rule = f"expected a mapping, `{name}: {{{_FIRST_KEYS[name]}: {problem['input']}}}`"
        case kind_of if kind_of in _EXPECTED:
            rule = f"expected {_EXPECTED[kind_of]}"
        case _:
            rule = problem["msg"][0].lower() + problem["msg"][1:]
    return f"{name} is {_shown(problem['input'])}: {rule}"


def _shown(value: object) -> str:
    return reprlib.repr(redacted(value)) if isinstance(value, str) else redacted(reprlib.repr(value))
