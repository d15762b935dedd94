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
from cerebro_elastic.reporting.results import ConfigResult
from cerebro_elastic.reporting.tables import number

_MEANINGS = {
    "model.safetensors": "the weights by name ([safetensors](https://huggingface.co/docs/safetensors))",
    "model.ckpt": "a Lightning checkpoint: weights, hyper-parameters, optimizers, schedulers, counters",
    "record.json": "this card for machines: the recipe, the metrics of all epochs, the whole visit log",
}
_SHOWN = 20
"""How many columns and categories the card lists; the record has all."""


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
    exactness: str,
    features: Sequence[str],
    vocabulary: Mapping[str, Sequence[str | int | bool]],
) -> str:
    """Write the card in Markdown.

    Args:
        spec: The run's spec.
        objective: The metric by which configs are ranked.
        licence: The licence of the data, if the recipe names it.
        configs: How many configs the run has.
        row: The results of the exported config.
        at: The config at the end of the exported epoch.
        ref: Its checkpoint.
        visits: The visits that led to it.
        parameters: The number of the model's parameters.
        load: Python code that loads the model from the files.
        files: The names of the exported files.
        lost: The parts of the config's state that the files do not contain.
        record: Where the run's record ended.
        exactness: What is known of the run's exactness, in a line.
        features: The columns of the matrix ``features``, if there is one.
        vocabulary: By encoded column: its categories, in the order of their codes.
    """
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
        exactness=exactness,
        features=features,
        vocabulary={name: list(categories) for name, categories in vocabulary.items()},
        shown=_SHOWN,
        meanings=_MEANINGS,
    )
