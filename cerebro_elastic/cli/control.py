"""Commands that change a live run: one for each verb, with its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer
from pydantic.fields import FieldInfo

from cerebro_elastic.cli.options import Json, RunName, config_ids, echo, echo_json, on_run
from cerebro_elastic.runs.verbs import VERBS, Verb, checked

if TYPE_CHECKING:
    from cerebro_elastic.runs.run import Run

_ARGUMENTS = ("config", "node", "hparams")
"""The fields that are arguments; the others are options."""
_OPTIONS = {"start": "--from"}
_CONFIGS = ("config", "like")


def _command(kind: type[Verb]) -> Callable[..., None]:
    """The command of a verb."""

    def command(run: Run, as_json: bool, hparams: list[str] | None = None, **given: Any) -> None:
        from cerebro_elastic.cli.shapes import ChangedJson

        if hparams:
            given["hparams"] = dict(map(_pair, hparams))
        done = checked(kind, given).perform(run)
        if not as_json:
            echo(done.said)
            return
        config = done.config
        changed = ChangedJson(
            run=run.id,
            said=done.said,
            config=None if config is None else config.seen_as,
            hparams=None if config is None else config.hparams,
            epoch=None if config is None else config.epoch,
        )
        echo_json(changed)

    fields = sorted(kind.model_fields.items(), key=lambda item: (item[0] not in _ARGUMENTS, item[0] == "by"))
    parameters = [
        inspect.Parameter("run", inspect.Parameter.KEYWORD_ONLY, annotation=RunName),
        *(_parameter(name, field) for name, field in fields),
        inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json),
    ]
    command.__doc__ = kind.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return on_run(command)


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    """A field as typer takes it."""
    settings: dict[str, Any] = {"help": field.description}
    if name in _CONFIGS:
        settings["autocompletion"] = config_ids
    default = ... if field.is_required() else field.get_default(call_default_factory=True)
    kind = field.annotation
    if name == "hparams":
        kind, default, settings["metavar"] = list[str] | None, None, "KEY=VALUE"
    if name in _ARGUMENTS:
        described = typer.Argument(default, **settings)
    else:
        described = typer.Option(default, _OPTIONS.get(name, f"--{name}"), **settings)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=described, annotation=kind)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE, such as lr=0.01")
    return name, value


stop, resume, add, drain = map(_command, VERBS.values())
