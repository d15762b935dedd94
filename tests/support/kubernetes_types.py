"""Compares what is written for Kubernetes with the types of its API, which the package ``kubernetes`` has."""

from __future__ import annotations

import re
from typing import Any

_PLAIN = {"str": str, "int": int, "float": (int, float), "bool": bool, "object": object, "datetime": str}


def check_type(value: Any, kind: str, where: str) -> Any:
    """``value`` as an object of the client's type ``kind``. Raises ``ValueError``, which says ``where``,
    for a key that the type does not have, one that is missing, and a value of another type."""
    if (inner := re.fullmatch(r"list\[(.*)\]|dict\[str, (.*)\]", kind)) is not None:
        container, item = (list, inner[1]) if inner[1] else (dict, inner[2])
        if not isinstance(value, container):
            raise ValueError(f"{where} is {value!r}: expected {kind}")
        if isinstance(value, list):
            return [check_type(each, item, f"{where}[{i}]") for i, each in enumerate(value)]
        quantity = where.endswith((".limits", ".requests"))  # which may be numbers, too
        return {
            key: each if quantity and isinstance(each, int) else check_type(each, item, f"{where}.{key}")
            for key, each in value.items()
        }
    if kind in _PLAIN:
        if not isinstance(value, _PLAIN[kind]) or (isinstance(value, bool) and kind in ("int", "float")):
            raise ValueError(f"{where} is {value!r}: expected {kind}")
        return value
    from kubernetes import client  # which takes two seconds to import

    model = getattr(client, kind)
    attributes = {key: name for name, key in model.attribute_map.items()}
    if not isinstance(value, dict) or (unknown := value.keys() - attributes.keys()):
        raise ValueError(f"{where} has {unknown if isinstance(value, dict) else value!r}: expected {kind}")
    fields = {
        attributes[key]: check_type(each, model.openapi_types[attributes[key]], f"{where}.{key}")
        for key, each in value.items()
    }
    try:
        return model(**fields)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
