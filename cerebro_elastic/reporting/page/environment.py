"""How the templates of pages are filled in: what users named is text, and an unknown name is an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jinja2 import Environment, PackageLoader, StrictUndefined


def page_environment(filters: Mapping[str, Callable[..., object]]) -> Environment:
    """The environment of the pages' templates, with ``filters`` by name."""
    environment = Environment(
        loader=PackageLoader("cerebro_elastic.reporting.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    return environment
