"""A dataset's description as one HTML page that needs nothing else."""

from __future__ import annotations

from functools import cache

import numpy as np
from jinja2 import Environment

from cerebro_elastic.data.reading.description import Description
from cerebro_elastic.reporting.dataset_tables import (
    SPLIT_NAMES,
    rows_text,
    shape_text,
    share_text,
    value_text,
)
from cerebro_elastic.reporting.page.environment import page_environment
from cerebro_elastic.reporting.png import picture_url
from cerebro_elastic.reporting.tables import bytes_text

_MOST_PARTITIONS = 100


def render_dataset(description: Description) -> str:
    """Write the page."""
    return (
        _environment()
        .get_template("dataset.html.j2")
        .render(
            description=description,
            names=SPLIT_NAMES,
            classes={balance.column: balance.classes for balance in description.balances},
        )
    )


@cache
def _environment() -> Environment:
    environment = page_environment(
        {
            "bytes": bytes_text,
            "dtype": lambda dtype: np.dtype(dtype).name,
            "rows": lambda rows: rows_text(rows, _MOST_PARTITIONS),
            "shape": shape_text,
            "value": value_text,
            "picture": picture_url,
        }
    )
    environment.globals["share"] = share_text
    return environment
