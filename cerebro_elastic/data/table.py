"""A file's table, and what columns of several tables have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from cerebro_elastic.errors import DataError, brief

Wanted: TypeAlias = Collection[str] | None
"""The columns that are used; ``None``: all. What cannot be read of others is left out."""


def _is_text_anyway(_name: str) -> None:
    """A table whose values have types of their own: they are written as text afterwards."""


@dataclass(frozen=True, slots=True)
class Table:
    """A file's table."""

    name: str
    """What messages call it."""
    schema: Any
    """Its columns, of pyarrow."""
    batches: Callable[[], Iterable[Any]]
    """Reads it, as record batches."""
    read_as_text: Callable[[str], None] = _is_text_anyway
    """Have it read a column as the text that stands in the file."""

    def check_names(self) -> Table:
        """The table. Raises ``DataError`` if two of its columns have one name."""
        if twice := [name for name, count in Counter(self.schema.names).items() if count > 1]:
            raise DataError(
                f"{self.name} has the column {brief(repr(twice[0]))} more than once: rename one of them (or "
                "is its first line a row? it must have the names)"
            )
        return self


def is_wanted(name: str, wanted: Wanted) -> bool:
    """Whether the column is used; of a structure ``a``, if one of its fields ``a.b`` is."""
    return wanted is None or name in wanted or any(other.startswith(f"{name}.") for other in wanted)


def common_schema(
    schemas: Sequence[tuple[str, Any]], wanted: Wanted, read_as_text: Callable[[str], object]
) -> Any:
    """The columns of all schemas, which come with the names of their files. A column has the type that holds
    all of its values: text if they have nothing else in common.

    Raises ``DataError`` if there is none and the column is ``wanted``. Calls ``read_as_text`` with the names
    of those that become text.
    """
    import pyarrow as pa

    fields, names = [], dict.fromkeys(name for _, schema in schemas for name in schema.names)
    for name in names:
        having = [(where, schema) for where, schema in reversed(schemas) if name in schema.names]
        types = {schema.field(name).type: where for where, schema in having}
        type_ = _common_type(list(types))
        if type_ == pa.null() and any(other.startswith(f"{name}.") for other in names):
            continue  # a structure that some rows have not
        if type_ is not None:
            fields.append(pa.field(name, type_))
            if pa.types.is_string(type_) and any(not pa.types.is_string(other) for other in types):
                read_as_text(name)
        elif is_wanted(name, wanted):
            kinds = ", and ".join(f"{brief(str(kind))} in {where}" for kind, where in reversed(types.items()))
            raise DataError(
                f"column {brief(repr(name))} is {kinds}: make them of one type, or leave the column out by "
                "`columns`"
            )
    return pa.schema(fields)


def _common_type(types: Sequence[Any]) -> Any:
    """The type that holds the values of all of them; ``None`` if none does."""
    import pyarrow as pa

    try:
        schemas = [pa.schema([("column", type_)]) for type_ in types]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        values = [type_.value_type if pa.types.is_dictionary(type_) else type_ for type_ in types]
        nested = any(pa.types.is_nested(type_) or pa.types.is_binary(type_) for type_ in values)
        return None if nested else pa.string()
