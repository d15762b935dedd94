"""The model card of an exported model: its content, its origin, its use."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader

from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import RecordHead
from cerebro_elastic.reporting.results import ConfigResult
from cerebro_elastic.reporting.tables import measured_by
from cerebro_elastic.system.words import number, one_line

_MEANINGS = {
    "model.safetensors": "the weights by name ([safetensors](https://huggingface.co/docs/safetensors))",
    "adapter_model.safetensors": "the adapter's weights by name",
    "adapter_config.json": "what PEFT knows of the adapter",
    "model.ckpt": "a Lightning checkpoint: weights, hyper-parameters, optimizers, schedulers, counters",
    "record.json": "this card for machines: the recipe, the metrics of all epochs, the whole visit log",
}
_HUB_LICENCES = frozenset((
    "afl-3.0", "agpl-3.0", "apache-2.0", "artistic-2.0", "bsd-2-clause", "bsd-3-clause", "bsl-1.0",
    "cc-by-2.0", "cc-by-3.0", "cc-by-4.0", "cc-by-nc-4.0", "cc-by-nc-nd-4.0", "cc-by-nc-sa-4.0",
    "cc-by-sa-3.0", "cc-by-sa-4.0", "cc0-1.0", "epl-2.0", "gpl-2.0", "gpl-3.0", "isc", "lgpl-2.1", "lgpl-3.0",
    "mit", "mpl-2.0", "odbl", "odc-by", "openrail", "pddl", "unknown", "unlicense", "wtfpl", "zlib",
))  # fmt: skip
"""Names of licences that the Hugging Face hub accepts in cards; any other is named beside `other`."""
_SHOWN = 20
"""The most columns and categories in the card; the record has all."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """The content of the card."""

    spec: Spec
    configs: int
    row: ConfigResult
    at: Config
    visits: Sequence[Visit]
    parameters: int
    load: str
    """Python code that loads the model from the files."""
    files: Sequence[str]
    lost: Sequence[str]
    """The parts of the config's state that the files do not contain."""
    record: RecordHead | None
    """The end of the run's record."""
    exactness: str
    matter: Mapping[str, str]
    """The card's header for programs, besides the licence and the tags."""
    features: Sequence[str]
    """The columns of the matrix ``features``, if it exists."""
    vocabulary: Mapping[str, Sequence[str | int | bool]]
    """By encoded column: its categories, in the order of their codes."""

    def markdown(self) -> str:
        """The card in Markdown."""
        environment = Environment(
            loader=PackageLoader("cerebro_elastic.reporting", "."),
            autoescape=False,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        environment.filters |= {
            "number": number,
            "text": _text,
            "code": _code,
            "fence": _fence,
            "yaml": _yaml,
            "slug": _slug,
        }
        named = self.spec.recipe["data"].get("license")
        licence = (named or "unknown").lower()
        return environment.get_template("card.md.j2").render(
            **vars(self),
            licence=named,
            hub_licence=licence if licence in _HUB_LICENCES else "other",
            shown=_SHOWN,
            meanings=_MEANINGS,
            measured=f"Measured {measured_by(self.row.test)}" if self.row.test else "",
        )


def _slug(text: str) -> str:
    """The text in the hub's form for the name of a licence."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")


def _text(value: Any) -> str:
    """Text in a line or a cell of a table: no HTML, no link, no image, no end of the cell."""
    text = re.sub(r"([\\`\[\]|*~])", r"\\\1", one_line(str(value)))
    return html.escape(text, quote=False)


def _code(value: Any) -> str:
    """Text in a line or a cell of a table, as a span of code."""
    text = one_line(str(value)).replace("|", "\\|")
    ticks = "`" * (_longest(text) + 1)
    gap = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{gap}{text}{gap}{ticks}"


def _fence(text: str) -> str:
    """The fence of a block of code with this text."""
    return "`" * max(3, _longest(text) + 1)


def _yaml(value: str) -> str:
    """A text as a value on one line."""
    text: str = yaml.safe_dump([one_line(value)], default_flow_style=True, allow_unicode=True, width=math.inf)
    return text.strip()[1:-1]


def _longest(text: str) -> int:
    """The length of the longest row of backticks."""
    return max((len(ticks) for ticks in re.findall("`+", text)), default=0)
