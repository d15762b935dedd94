"""An extension of griffe, which reads docstrings for mkdocstrings."""

from __future__ import annotations

from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Reads ``Example:`` as the section ``Examples:``, so that what follows ``>>>`` is shown as code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every module, class, function and attribute that was read."""
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("Example:\n", "Examples:\n")
