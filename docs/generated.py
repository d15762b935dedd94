"""Writes the parts of pages that follow from the code: ``python docs/generated.py``.

Such a part stands between ``<!-- generated: NAME -->`` and ``<!-- / -->``; ``GENERATED`` has what writes it.
The tests in ``tests/docs`` compare the pages with it. mkdocs calls the hook at the end of this file.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from cerebro_elastic import errors as errors_module
from cerebro_elastic.core.history.keys import KINDS
from cerebro_elastic.core.history.machine import TABLE
from cerebro_elastic.recipes import Recipe, search
from cerebro_elastic.recipes.data import OF_COLUMNS, OF_ROWS
from cerebro_elastic.recipes.fields import Section
from cerebro_elastic.recipes.tasks import TorchSection
from cerebro_jax.section import JaxSection
from cerebro_keras.section import KerasSection
from cerebro_lightning.section import LightningSection
from cerebro_sklearn.section import BoostingSection, SklearnSection
from cerebro_transformers.section import LoraSection, TransformersSection

SEARCHES: Mapping[str, type[Section]] = {
    "`search` of method `tpe`, `cmaes`, `gp`, `qmc` or `nsga2`": search.SampledSearch,
    "`search` of method `median`": search.MedianSearch,
    "`search` of method `asha`": search.AshaSearch,
    "`search` of method `hyperband` or `bohb`": search.HyperbandSearch,
    "`search` of method `pbt`": search.PbtSearch,
}
"""Sections that add keys to another section, by heading."""


def sections() -> Mapping[str, type[Section]]:
    """All sections of a recipe, by heading, in the order of the reference."""
    own = {
        f"`{name}`": field.annotation
        for name, field in Recipe.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
    }
    data, searching = own.pop("`data`"), own.pop("`search`")
    del own["`task`"]  # each kind has a section of its own
    return {
        "The recipe": Recipe,
        "`task` of kind `lightning`": LightningSection,
        "`task` of kind `torch`": TorchSection,
        "`task` of kind `transformers`": TransformersSection,
        "`task.lora` of kind `transformers`": LoraSection,
        "`task` of kind `keras`": KerasSection,
        "`task` of kind `jax`": JaxSection,
        "`task` of kind `sklearn`": SklearnSection,
        "`task` of kind `boosting`": BoostingSection,
        "`data`": data,
        "`search`": searching,
        "`search.budget`": search.Budget,
        "`search.start`": search.Start,
        **SEARCHES,
        **own,
    }


def recipe_reference() -> str:
    """Every section of a recipe: keys, types, defaults and descriptions."""
    return "\n".join(line for heading, section in sections().items() for line in _section(heading, section))


def _section(heading: str, section: type[Section]) -> Iterator[str]:
    described = field_texts(section)
    yield from (f"### {heading}", "")
    if heading in SEARCHES:
        (base,) = section.__bases__
        parent = next((name for name, other in SEARCHES.items() if other is base), "`search`")
        yield from (f"These keys, and those of {parent}:", "")
    yield from ("| key | type | default | description |", "|---|---|---|---|")
    for key, field in own_fields(section).items():
        described_ = f"{_help(key, field)} {described.get(key, '')}".strip()
        yield f"| `{key}` | {_type(key, field)} | {default_of(key, field)} | {described_} |"
    yield ""


def own_fields(section: type[Section]) -> dict[str, FieldInfo]:
    """The fields that a section adds to those of its base."""
    if not issubclass(section, search.SearchSection):
        return dict(section.model_fields)
    (base,) = section.__bases__
    known = base if base in (Section, *search.SEARCHES.values()) else search.SearchSection
    inherited = getattr(known, "model_fields", {})
    return {key: field for key, field in section.model_fields.items() if key not in inherited}


def _help(key: str, field: FieldInfo) -> str:
    """What `cerebro prepare` says of a key, too, and the data for which a recipe may have it."""
    if not field.description:
        return ""
    text = f"{field.description[0].lower()}{field.description[1:]}"
    if key in OF_ROWS:
        return field.description
    return f"Only with `source`: {text}" if key in OF_COLUMNS else f"Not with `url`: {text}"


_KINDS: Mapping[Any, str] = {bool: "true or false", int: "whole number", float: "number", str: "text"}
_NAMED: Mapping[str, str] = {
    "max_bad_rows": "whole number or percentage",
    "partitions": "whole number, or `auto`",
    "nodes": "whole number, range `'2:8'`, or `auto`",
    "valid": "number, percentage or source",
    "task": "section",
    "search": "section",
    "parallelism": "name, section, list of these, or `auto`",
    "space": "section of [domains](#the-search-space)",
    "known": "list",
    "budget": "section",
    "start": "section",
}


def _type(key: str, field: FieldInfo) -> str:
    return _NAMED.get(key) or _kind(field.annotation)


def _kind(annotation: Any) -> str:
    """A type in words."""
    origin, arguments = get_origin(annotation), [a for a in get_args(annotation) if a is not type(None)]
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(_kind, arguments)))
    if origin is not None and isinstance(origin, type) and issubclass(origin, tuple | list):
        return "list"
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return "mapping"
    if origin is not None:  # Annotated
        return _kind(arguments[0])
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return "section"
    return _KINDS.get(annotation, "text")


def default_of(key: str, field: FieldInfo) -> str:
    """A field's default as the reference writes it."""
    default: Any = field.default
    if key == "name":
        return "the file's name"
    if default is PydanticUndefined:
        return "*required*"
    if default is None:
        return "*none*"
    if isinstance(default, Section):
        return "a section"
    if key == "partitions":
        return "`auto`"
    if key == "nodes" or isinstance(default, str):
        return f"`{default}`"
    written = list(default) if isinstance(default, tuple) else default
    return f"`{yaml.safe_dump(written, default_flow_style=True).splitlines()[0]}`"


def cli_reference() -> str:
    """Every command with its arguments and options; those of many commands stand once, at the end."""
    import typer.main

    from cerebro_elastic.cli.app import app

    group: Any = typer.main.get_command(app)
    commands = {name: group.commands[name] for name in group.commands if not group.commands[name].hidden}
    rows = {name: dict(_parameter_rows(command)) for name, command in commands.items()}
    uses = Counter(row for of_command in rows.values() for row in of_command.values())
    common = sorted(row for row, count in uses.items() if count > 3 and row.startswith("| `--"))
    lines = [line for name in commands for line in _command(name, commands[name], rows[name], common)]
    return "\n".join([*lines, "## Options of many commands", "", *_TABLE, *common, ""])


_TABLE = ("| argument or option | default | description |", "|---|---|---|")


def _command(name: str, command: Any, rows: Mapping[str, str], common: Sequence[str]) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    words = [_written(a) if a.required else f"[{_written(a)}]" for a in arguments]
    usage = " ".join(["cerebro", name, *words, *(["[OPTIONS]"] if len(rows) > len(arguments) else [])])
    yield from (f"## `cerebro {name}`", "", inspect.cleandoc(command.help or ""), "")
    yield from ("```text", usage, "```", "")
    if own := [row for row in rows.values() if row not in common]:
        yield from (*_TABLE, *own, "")
    if others := [f"`{option}`" for option, row in rows.items() if row in common]:
        yield from (f"Also [{', '.join(others)}](#options-of-many-commands).", "")


def _written(argument: Any) -> str:
    return f"{argument.metavar or str(argument.name).upper()}{'...' if argument.nargs == -1 else ''}"


def _parameter_rows(command: Any) -> Iterator[tuple[str, str]]:
    """The row of each argument and option in the table, by its first name."""
    for parameter in sorted(command.params, key=lambda p: p.param_type_name == "option"):
        if getattr(parameter, "hidden", False) or parameter.name == "help":
            continue
        is_option = parameter.param_type_name == "option"
        names = list(parameter.opts) if is_option else [_written(parameter)]
        written = ", ".join(f"`{text}`" for text in names)
        yield names[0], f"| {written} | {_default(parameter)} | {_cell(parameter.help or '')} |"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "*required*"
    if isinstance(parameter.show_default, str):
        return _cell(parameter.show_default)
    value = parameter.default
    absent = value is None or value is False or value == "" or callable(value)
    return "" if absent else f"`{value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def json_reference() -> str:
    """What each command prints with ``--json``: the name of its object, and what the site makes descriptions
    of."""
    from cerebro_elastic.cli.shapes import SHAPES

    rows = (f"| `cerebro {command} --json` | `{shape.__name__}` |" for command, shape in SHAPES.items())
    shapes: list[Any] = list(SHAPES.values())
    for shape in shapes:  # which grows
        inner = [part for annotation in get_type_hints(shape).values() for part in _objects(annotation)]
        shapes += [part for part in inner if part not in shapes]
    others = (f"::: {shape.__module__}.{shape.__name__}" for shape in dict.fromkeys(shapes))
    return "\n".join(["| command | object |", "|---|---|", *rows, "", "\n\n".join(others)])


def field_texts(shape: type) -> dict[str, str]:
    """The docstring under each field of a class and of its bases."""
    texts: dict[str, str] = {}
    for base in reversed([shape, *getattr(shape, "__orig_bases__", ()), *shape.__mro__]):
        if not isinstance(base, type) or not base.__module__.startswith("cerebro_"):
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                assert isinstance(field.target, ast.Name)
                texts[field.target.id] = " ".join(str(ast.literal_eval(text.value)).split())
    return texts


def _objects(annotation: Any) -> Iterator[type]:
    """The types of objects in an annotation."""
    own = isinstance(annotation, type) and annotation.__module__.startswith("cerebro_elastic")
    if own and not issubclass(annotation, Enum):
        yield annotation
    for argument in get_args(annotation):
        yield from _objects(argument)


def exits_reference() -> str:
    """Every exit code, and the errors that end a command with it."""
    errors = [error for _, error in inspect.getmembers(errors_module, inspect.isclass)]
    rows = ["| code | ends with | meaning |", "|---|---|---|", *EXITS]
    for error in errors:
        if issubclass(error, errors_module.CerebroError):
            text = inspect.cleandoc(error.__doc__ or "").partition("\n\n")[0]
            rows.append(f"| {error.exit_code} | `{error.__name__}` | {_cell(text).replace('``', '`')} |")
    return "\n".join(rows)


EXITS = (
    "| 0 |  | The command did what it was asked to. |",
    "| 1 |  | It has found something wrong: `verify` a violation, `replay` a difference, `check` that units "
    "differ from an ordinary fit, `doctor` a fault; `run`, `extend` and `host`: all configs of a "
    "run that has ended failed, or none has a value of the objective. Or you did not agree when asked. |",
    "| 2 |  | The command line is wrong: an unknown option, a missing argument. |",
    "| 130 |  | Ctrl-C or SIGTERM. The same command continues a run. |",
)
"""The exit codes that are no error's."""


def keys_reference() -> str:
    """Every kind of a run's keys."""
    writers = {name: {kind.by} - {""} for name, kind in KINDS.items()}
    for row in TABLE.values():
        for name in (*row.keys, *row.also):
            writers[name].update(row.by)
    rows = (
        f"| `{name}{'/...' if kind.has_names else ''}` | {kind.text} | {', '.join(sorted(writers[name]))} |"
        for name, kind in KINDS.items()
    )
    return "\n".join(["| key | value | written by |", "|---|---|---|", *rows])


def events_reference() -> str:
    """Every event of a run's history."""
    rows = (
        f"| `{event.__name__}` | {' '.join(str(row.after.__doc__).split())} | {', '.join(row.by)} "
        f"| {', '.join(f'`{kind}`' for kind in (*row.keys, *row.also))} |"
        for event, row in TABLE.items()
    )
    return "\n".join(
        ["| event | possible if; what is true then | written by | keys |", "|---|---|---|---|", *rows]
    )


EXTRAS: Mapping[str, str] = {
    "boosting": "LightGBM and XGBoost",
    "cli": "[LightningCLI files](models.md#config-files) as tasks",
    "cloudpickle": "what a notebook defines and has no source that can be written",
    "deepspeed": "ZeRO stages 1 to 3",
    "etcd3": "etcd over gRPC",
    "exact": "CP-SAT, for the scheduler `exact`",
    "examples": "the data of the examples: scikit-learn's digits, flights, pictures",
    "gpu": "the utilisation of NVIDIA GPUs (`nvidia-ml-py`)",
    "hydra": "[configs of Hydra](models.md#hydra) as tasks",
    "jax": "JAX, optax and flax",
    "keras": "Keras 3",
    "kubernetes": "`torchx run cerebro.mop` on Kubernetes",
    "lightning": "LightningModules, `CerebroTrainer`",
    "mcp": "[a run for agents](agents.md)",
    "mlflow": "the tracker [MLflow](trackers.md)",
    "pandas": "results as a DataFrame",
    "parquet": "CSV, JSON lines, Parquet and Arrow",
    "plots": "curves and the Gantt chart as pictures",
    "ray": "`cerebro ray`, and the searchers of Ray Tune",
    "s3": "data and checkpoints on S3",
    "search": "optuna: samplers, Hyperband with TPE, studies",
    "sklearn": "scikit-learn's estimators",
    "tensorboard": "TensorBoard files",
    "torchx": "`torchx run cerebro.mop`",
    "transformers": "[transformers and PEFT](transformers.md)",
    "ui": "[the live page](watching.md#the-live-page)",
    "wandb": "the tracker [W&B](trackers.md)",
}
"""What each extra of the package brings, but for those of its developers."""


def extras_reference() -> str:
    """Every extra that a user may install."""
    return "\n".join(
        ["| extra | brings |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in EXTRAS.items())]
    )


def landing() -> str:
    """What the README begins with, with the links of a page in ``docs``."""
    readme = Path(__file__).parents[1].joinpath("README.md").read_text()
    (text,) = re.findall(r"<!-- landing -->(.*?)<!-- / -->", readme, re.DOTALL)
    return str(text).replace("](docs/", "](")


GENERATED: Mapping[str, Callable[[], str]] = {
    "recipe": recipe_reference,
    "cli": cli_reference,
    "json": json_reference,
    "exits": exits_reference,
    "keys": keys_reference,
    "events": events_reference,
    "extras": extras_reference,
    "landing": landing,
}
"""The parts by name, and what writes them."""


def completed(page: str) -> str:
    """A page with its generated parts as they are now."""
    return re.sub(
        r"(<!-- generated: (\w+) -->\n).*?(<!-- / -->)",
        lambda part: f"{part[1]}\n{GENERATED[part[2]]().strip()}\n\n{part[3]}",
        page,
        flags=re.DOTALL,
    )


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by mkdocs for every page: the search leaves the decisions out."""
    if page.file.src_uri.startswith("decisions/"):
        page.meta["search"] = {"exclude": True}
    return markdown


if __name__ == "__main__":
    for path in Path(__file__).parent.rglob("*.md"):
        path.write_text(completed(path.read_text()))
