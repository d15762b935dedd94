"""A compiled model, and all state that training changes, as arrays by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import Any

import keras
import numpy as np
from keras import config

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.tasks import (
    is_users,
    made_again,
    object_digest,
    process_settings,
    tree_of,
)
from cerebro_keras._keras_internals import (
    GRAPH,
    build_for,
    dtype_policy,
    own_names,
    put_dtype_policy,
    trained_by,
)

SETTINGS = (
    *(
        process_settings.Setting(
            f"keras.config.set_{name}", getattr(config, name), getattr(config, f"set_{name}")
        )
        for name in ("floatx", "epsilon", "image_data_format")
    ),
    process_settings.Setting("keras.config.set_dtype_policy", dtype_policy, put_dtype_policy, refused=False),
)
"""Keras' settings of the process. The policy of dtypes is the session's, which each model restarts."""


class HeldObjects:
    """The objects that ``roots`` lead to, by path.

    Args:
        roots: Models or callbacks, by name.
        known: The variables that are carried elsewhere, and their owners.
        carries: Whether attributes may change. Compiled code reads them once, so that there they may not.
    """

    def __init__(self, roots: Mapping[str, Any], known: Any, *, carries: bool) -> None:
        self._roots, self._carries = roots, carries
        self._known = {id(each) for each in known}
        self._owners: dict[str, Any] = {}
        self.optimizers: dict[str, Any] = {}
        self._before = self._tokens()

    def load(self, state: Mapping[str, Any], variables: Mapping[str, Any]) -> None:
        """Set the attributes and the optimizers of ``state``; ``variables`` are those of the model."""
        for path, value in made_again(state["attributes"]).items():
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
            "attributes": tree_of(attributes),
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


_RATE = "learning_rate"


class TrainedModel:
    """A model that serves many units of a rank: its functions stay compiled, its values are those of each
    unit's state.

    Args:
        model: The compiled model, as ``model_fn`` has made it.
        generators: Captures and restores the random generators of the backend.
    """

    def __init__(self, model: keras.Model, generators: Any) -> None:
        self.model = model
        self._held: HeldObjects | None = None
        self.reusable = True
        """Whether only variables that a state has differ from the model that ``model_fn`` made."""
        self._initial: Mapping[str, Any] | None = None
        self.generators = generators
        self._drawn: Mapping[str, Any] = {}

    def load(self, state: Mapping[str, Any] | None, *, keep_rate: bool = False) -> None:
        """Give all variables their values; called when they have been built. Without a state, variables and
        generators get the values with which ``model_fn`` made them. ``keep_rate``: the learning rate is not
        the state's, but this model's own."""
        if self._initial is None:
            self._initial, self._drawn = self.values(), self.generators.capture()
        values = self._initial if state is None else state
        for group, variables in self._groups().items():
            if values[group].keys() != variables.keys():
                raise TaskError(
                    f"the state has the {group} variables {sorted(values[group])}, and the model has "
                    f"{sorted(variables)}: hyper-parameters that change them cannot be changed by a search "
                    "that continues from a state"
                )
            for name, variable in variables.items():
                own = keep_rate and group == "optimizer" and name.endswith(_RATE)
                variable.assign((self._initial if own else values)[group][name])
        if state is None:
            self.generators.restore(self._drawn)
        self.reusable = False
        if self._held is None:
            known = [*self.model.variables, self.model.optimizer, *_inner(self.model.optimizer)]
            carries = keras.backend.backend() != "jax"
            self._held = HeldObjects({"model": self.model}, known, carries=carries)
        if state is not None and "held" in state:
            self._held.load(state["held"], self._groups()["model"])

    def held(self) -> Mapping[str, Any]:
        """The model's state besides the variables that Keras lists; called when a unit ends. Raises
        ``TaskError`` naming a value that cannot be carried."""
        assert self._held is not None
        state = self._held.state(self._groups()["model"])
        self.reusable = not any(state["optimizers"]) and not state["attributes"]
        return state

    def load_metrics(self, values: Mapping[str, Any]) -> None:
        """Continue the metrics of an epoch."""
        for name, variable in _named(self.model.metrics_variables).items():
            variable.assign(values[name])

    def values(self) -> dict[str, dict[str, Any]]:
        """The arrays of model and optimizer."""
        return {group: _arrays(variables) for group, variables in self._groups().items()}

    @contextmanager
    def ending_as(self, ends: Callable[[], bool]) -> Iterator[None]:
        """A ``fit`` within it puts the averages of ``use_ema`` in place of the weights only if the config's
        whole training ``ends`` with it."""
        optimizer = self.model.optimizer
        finalize = optimizer.finalize_variable_values
        optimizer.finalize_variable_values = lambda variables: finalize(variables) if ends() else None
        try:
            yield
        finally:
            del optimizer.finalize_variable_values

    def metrics(self) -> dict[str, Any]:
        return _arrays(_named(self.model.metrics_variables))

    def _groups(self) -> dict[str, dict[str, Any]]:
        return {
            "model": _named(self.model.variables),
            "optimizer": _named(self.model.optimizer.variables),
        }


def check_model(model: Any, name: str) -> keras.Model:
    """The model that ``model_fn`` returned. Raises ``TaskError`` unless units can train it."""
    if not isinstance(model, keras.Model) or not model.compiled:
        raise TaskError(f"{name} returned a {type(model).__name__}: return a compiled keras.Model")
    return model


def _inner(optimizer: Any) -> list[Any]:
    """The optimizer that scales losses around another holds that one."""
    inner = getattr(optimizer, "inner_optimizer", None)
    return [] if inner is None else [inner]


def _named(variables: Any) -> dict[str, Any]:
    """The variables by path; the number in the list tells equal paths apart."""
    named: dict[str, Any] = {}
    for number, variable in enumerate(variables):
        path = variable.path
        named[f"{path}.{number}" if path in named else path] = variable
    return named


def _arrays(variables: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.array(keras.ops.convert_to_numpy(variable)) for name, variable in variables.items()}
