"""Record batches of pyarrow: the common schema of several tables, and their arrays as columns."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.kinds.kind import Facts, Wanted, is_wanted
from cerebro_elastic.data.ragged import Ragged, offsets_of
from cerebro_elastic.errors import DataError, brief


def facts_of(schema: Any, batches: Iterable[Any]) -> Facts:
    """The facts of a table that has to be read for them."""
    rows, lengths = 0, dict[str, set[int]]()
    for batch in batches:
        rows += batch.num_rows
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            if _is_list(values.type):
                lengths.setdefault(name, set()).update(_lengths_of(values))
    return Facts(rows, schema, {name: found.pop() for name, found in lengths.items() if len(found) == 1})


def common_schema(schemas: Sequence[tuple[str, Any]], wanted: Wanted) -> Any:
    """The columns of all schemas, each given with its file's name. A column has the type that holds all of
    its values. Raises ``DataError`` if no type does and the column is ``wanted``."""
    import pyarrow as pa

    fields, names = [], dict.fromkeys(name for _, schema in schemas for name in schema.names)
    for name in names:
        types: dict[Any, str] = {}
        for where, schema in schemas:
            if name in schema.names:
                types.setdefault(schema.field(name).type, where)
        type_ = _common_type(list(types))
        if type_ == pa.null() and any(other.startswith(f"{name}.") for other in names):
            continue  # a structure that some rows lack
        if type_ is not None:
            fields.append(pa.field(name, type_))
        elif is_wanted(name, wanted):
            kinds = ", and ".join(f"{brief(str(kind))} in {where}" for kind, where in types.items())
            raise DataError(
                f"column {brief(repr(name))} is {kinds}: make them of one type, or leave the column out by "
                "`columns`"
            )
    return pa.schema(fields)


def _common_type(types: Sequence[Any]) -> Any:
    """The type that holds the values of all of them; ``None`` if none does."""
    import pyarrow as pa

    values = [type_.value_type if pa.types.is_dictionary(type_) else type_ for type_ in types]
    try:
        schemas = [pa.schema([("column", type_)]) for type_ in values]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return None


_ENCODED = frozenset({"bytes", "path"})
"""The fields of a picture or a sound as Hugging Face's ``datasets`` writes it."""


def flat(batch: Any) -> Any:
    """The record batch without structures: their fields are columns, ``a.b``; of encoded values only the
    bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names, columns, nested = [], [], False
    for field, values in zip(batch.schema, batch.columns, strict=True):
        if not pa.types.is_struct(field.type):
            names.append(field.name)
            columns.append(values)
            continue
        inner = [child.name for child in field.type]
        is_encoded = set(inner) == _ENCODED
        nested = nested or not is_encoded
        names += [field.name] if is_encoded else [f"{field.name}.{name}" for name in inner]
        columns += [pc.struct_field(values, name) for name in (["bytes"] if is_encoded else inner)]
    flattened = pa.RecordBatch.from_arrays(columns, names=names)
    return flat(flattened) if nested else flattened


def flat_schema(schema: Any) -> Any:
    """The columns of record batches as ``flat`` makes them."""
    import pyarrow as pa

    empty = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    return flat(empty).schema.with_metadata(schema.metadata)


def text_of(schema: Any) -> str:
    """The schema as a text, for a manifest."""
    return base64.b64encode(schema.serialize()).decode()


def schema_in(text: str) -> Any:
    """The schema that ``text_of`` has made a text of."""
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def cast_to(batch: Any, field: Any) -> Any:
    """The batch's column as that of ``field``; if it lacks it, without values."""
    import pyarrow as pa

    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    values = batch.column(field.name)
    return values if values.type == field.type else values.cast(field.type)


def column_of(name: str, values: Any) -> NDArray[Any] | Ragged:
    """An array of pyarrow as a column: lists and binary values have varying lengths. Raises ``DataError`` if
    one of these is missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    type_ = values.type
    if isinstance(values, pa.DictionaryArray):
        return column_of(name, values.dictionary_decode())
    if pa.types.is_decimal(type_):
        return column_of(name, values.cast(pa.float64()))
    if is_binary(type_):
        _check_no_nulls(name, values, np.arange(len(values) + 1))
        return _encoded(values.cast(pa.large_binary()))
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return _texts(values)
    if not _is_list(type_):
        array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
        return array
    _check_no_nulls(name, values, np.arange(len(values) + 1))
    lengths = pc.list_value_length(values).to_numpy(zero_copy_only=False)
    offsets, items = offsets_of(lengths), values.flatten()
    _check_no_nulls(name, items, offsets)
    inner = column_of(name, items)
    if isinstance(inner, Ragged):
        widths = set(inner.lengths.tolist()) or {0}
        if inner.kind == "bytes" or len(widths) > 1:
            raise DataError(
                f"column {name!r} has lists of lists or of bytes, of varying lengths: flatten them"
            )
        inner = inner.values.reshape(len(inner), widths.pop(), *inner.value_shape)
    if isinstance(type_, pa.FixedSizeListType):
        return inner.reshape(len(values), type_.list_size, *inner.shape[1:])
    return Ragged(inner, offsets)


def is_binary(type_: Any) -> bool:
    """Whether values of the type are bytes."""
    import pyarrow.types as types

    return bool(types.is_binary(type_) or types.is_large_binary(type_) or types.is_fixed_size_binary(type_))


def _is_list(type_: Any) -> bool:
    """Whether values of the type are lists."""
    import pyarrow.types as types

    kinds = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    return any(is_kind(type_) for is_kind in (*kinds, types.is_list_view, types.is_large_list_view))


def _lengths_of(values: Any) -> set[int]:
    """The different lengths of an array of lists."""
    import pyarrow.compute as pc

    return set(pc.unique(pc.list_value_length(values)).to_pylist())


def _encoded(values: Any) -> Ragged:
    """Large binary values, without a copy."""
    _, offsets, data = values.buffers()
    begin = values.offset
    bounds = np.frombuffer(offsets, np.int64)[begin : begin + len(values) + 1] if len(values) else np.zeros(1)
    content = np.frombuffer(data or b"", np.uint8)[int(bounds[0]) : int(bounds[-1])]
    return Ragged(content, (bounds - bounds[0]).astype(np.int64), "bytes")


def _texts(values: Any) -> NDArray[Any]:
    """Equal texts are one object: a column of categories takes 8 bytes a row."""
    codes = values.dictionary_encode()
    texts = np.array([*codes.dictionary.to_pylist(), None], object)
    column: NDArray[Any] = texts[codes.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)]
    return column


def _check_no_nulls(name: str, values: Any, offsets: NDArray[Any]) -> None:
    """Raise ``DataError`` if a value, of the row that ``offsets`` say, is missing."""
    if values.null_count:
        at = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        row = int(np.searchsorted(offsets, at, "right")) - 1
        raise DataError(
            f"column {name!r} has no value in row {row} (the first is 0): remove the row, or leave the "
            "column out by `columns`"
        )
