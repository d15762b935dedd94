"""The model card of an exported model: what it is, where it comes from, how it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jinja2 import Environment, PackageLoader

from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import CheckpointRef, RecordHead
from cerebro_elastic.recipes import Objective
from cerebro_elastic.reporting.markup import code, fence, markdown, yaml_value
from cerebro_elastic.reporting.page.scale import number
from cerebro_elastic.reporting.results import ConfigResult

_MEANINGS = {
    "model.safetensors": "the weights by name ([safetensors](https://huggingface.co/docs/safetensors))",
    "model.ckpt": "a Lightning checkpoint: weights, hyper-parameters, optimizers, schedulers, counters",
    "record.json": "this card for machines: the recipe, the metrics of all epochs, the whole visit log",
}
_SHOWN = 20
"""So many columns and categories are listed; all are in the record."""


def card(
    *,
    spec: Spec,
    objective: Objective,
    licence: str | None,
    configs: int,
    row: ConfigResult,
    at: Config,
    ref: CheckpointRef,
    visits: Sequence[Visit],
    parameters: int,
    load: str,
    files: Sequence[str],
    lost: Sequence[str],
    record: RecordHead | None,
    features: Sequence[str],
    vocabulary: Mapping[str, Sequence[str | int | bool]],
) -> str:
    """Markdown. ``at`` is the config at the end of the exported epoch, ``ref`` its state, to which the
    ``visits`` led; ``load`` is Python code that uses the ``files``; ``lost`` is what these do not carry.
    ``record`` is where the run's record ended. ``features`` are the columns of the matrix of that name, and
    ``vocabulary`` has the categories of encoded columns by code."""
    environment = Environment(
        loader=PackageLoader("cerebro_elastic.reporting", "."),
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "number": number,
        "text": markdown,
        "code": code,
        "fence": fence,
        "yaml": yaml_value,
    }
    return environment.get_template("card.md.j2").render(
        spec=spec,
        objective=objective,
        licence=licence,
        configs=configs,
        row=row,
        at=at,
        ref=ref,
        visits=visits,
        parameters=parameters,
        load=load,
        files=files,
        lost=lost,
        record=record,
        features=features,
        vocabulary={name: list(categories) for name, categories in vocabulary.items()},
        shown=_SHOWN,
        meanings=_MEANINGS,
    )
