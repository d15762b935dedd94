"""State of a model besides the variables that Keras lists: attributes of the user's classes, and optimizers
that a ``train_step`` uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any

import keras
import numpy as np

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.tasks import ObjectDecoder, ObjectEncoder, is_users, object_digest
from cerebro_keras._keras_internals import GRAPH, build_for, own_names, trained_by

_LIBRARIES = ("numpy.random.", "collections", "random")
"""Attributes may hold objects of these libraries, besides the user's."""


class HeldObjects:
    """The objects that ``roots`` lead to, by path.

    Args:
        roots: Models or callbacks, by name.
        known: The variables that are carried elsewhere, and their owners.
        carries: Whether attributes may change. Compiled code reads them once, so that there they may not.
        module: The user's module.
    """

    def __init__(self, roots: Mapping[str, Any], known: Any, *, carries: bool, module: str) -> None:
        self._roots, self._carries, self._module = roots, carries, module
        self._known = {id(each) for each in known}
        self._owners: dict[str, Any] = {}
        self.optimizers: dict[str, Any] = {}
        self._before = self._tokens()

    def load(self, state: Mapping[str, Any], variables: Mapping[str, Any]) -> None:
        """Set the attributes and the optimizers of ``state``; ``variables`` are those of the model."""
        changed = ObjectDecoder(self._module, _LIBRARIES).value(state["attributes"])
        for path, value in changed.items():
            owner, _, name = path.rpartition(".")
            setattr(self._owners[owner], name, value)
        for path, saved in state["optimizers"].items():
            optimizer = self.optimizers[path]
            build_for(optimizer, [variables[name] for name in saved["trains"]])
            for variable, value in zip(optimizer.variables, saved["values"], strict=True):
                variable.assign(value)

    def state(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """The state for ``load``. Raises ``TaskError`` naming a value that has changed and cannot be
        carried."""
        names = {id(variable): name for name, variable in variables.items()}
        now = self._tokens() if self._owners or self._before or self.optimizers else {}
        changed = sorted(path for path in {*now, *self._before} if now.get(path) != self._before.get(path))
        owned = {path for path in changed if path in now and path.rpartition(".")[0] in self._owners}
        if refused := [path for path in changed if path not in owned or not self._carries]:
            raise TaskError(
                f"{', '.join(refused[:3])} changed in training, which cannot hop to another node: keep what "
                "changes in a keras.Variable that the model makes"
                + ("; with the backend jax, compiled code reads attributes once" if not self._carries else "")
            )
        attributes = {path: self._attribute(path) for path in changed}
        return {
            "attributes": ObjectEncoder().tree(attributes, "attributes"),
            "optimizers": {
                path: {
                    "trains": [names[id(variable)] for variable in trained_by(optimizer)],
                    "values": [np.array(keras.ops.convert_to_numpy(v)) for v in optimizer.variables],
                }
                for path, optimizer in self.optimizers.items()
            },
        }

    def _attribute(self, path: str) -> Any:
        owner, _, name = path.rpartition(".")
        return _plain(getattr(self._owners[owner], name))

    def _tokens(self) -> dict[str, str]:
        """A digest of each attribute and closure of the user's."""
        self._owners, self.optimizers = {}, {}
        seen: dict[int, Any] = {}
        tokens: dict[str, str] = {}
        for name, root in self._roots.items():
            tokens.update(self._walk(root, name, seen))
        return tokens

    def _walk(self, value: Any, path: str, seen: dict[int, Any]) -> Iterator[tuple[str, str]]:
        if id(value) in seen or isinstance(value, type):
            return
        seen[id(value)] = value
        if isinstance(value, MethodType):
            yield from self._walk(value.__self__, path, seen)
        elif isinstance(value, FunctionType):
            if is_users(value) and value.__closure__:
                yield f"{path} ({value.__qualname__})", object_digest(value)
        elif isinstance(value, Mapping | list | tuple):
            items = value.items() if isinstance(value, Mapping) else enumerate(value)
            for key, item in items:
                yield from self._walk(item, f"{path}.{key}", seen)
        elif _is_keras(value) or is_users(type(value)):
            yield from self._object(value, path, seen)

    def _object(self, value: Any, path: str, seen: dict[int, Any]) -> Iterator[tuple[str, str]]:
        if isinstance(value, keras.optimizers.Optimizer) and id(value) not in self._known:
            self.optimizers[path] = value
        own = own_names() if _is_keras(value) else frozenset()
        users = is_users(type(value))
        if users:
            self._owners[path] = value
        for name, item in list(getattr(value, "__dict__", {}).items()):
            if own and name in GRAPH:
                continue
            inner = f"{path}.{name}"
            if _holds_keras(item) or name in own or not users:
                yield from self._walk(item, inner, seen)
            else:
                yield inner, object_digest(item)


def _is_keras(value: Any) -> bool:
    return any(kind.__module__.startswith("keras.") for kind in type(value).__mro__)


def _holds_keras(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_keras, value.values()))
    if isinstance(value, list | tuple | set):
        return any(map(_holds_keras, value))
    return isinstance(value, FunctionType | MethodType) or (_is_keras(value) and not isinstance(value, type))


def _plain(value: Any) -> Any:
    """The value with Python's containers in place of Keras' own."""
    if isinstance(value, list):
        return list(map(_plain, value))
    if isinstance(value, dict) and _is_keras(value):
        return {key: _plain(item) for key, item in value.items()}
    return set(value) if isinstance(value, set) else value
