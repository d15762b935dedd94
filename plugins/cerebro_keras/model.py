"""A compiled model, and all state that training changes, as arrays by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.tasks import ObjectEncoder
from cerebro_keras.attributes import HeldObjects

_RATE = "learning_rate"
_NOTHING_CHANGED = ObjectEncoder().tree({})


class TrainedModel:
    """A model that serves many units of a rank: its functions stay compiled, its values are those of each
    unit's state.

    Args:
        model: The compiled model, as ``model_fn`` has made it.
        generators: Captures and restores the random generators of the backend.
        module: The user's module.
    """

    def __init__(self, model: keras.Model, generators: Any, module: str) -> None:
        self.model = model
        self._module = module
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
                    "that goes on from a state"
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
            self._held = HeldObjects({"model": self.model}, known, carries=carries, module=self._module)
        if state is not None and "held" in state:
            self._held.load(state["held"], self._groups()["model"])

    def held(self) -> Mapping[str, Any]:
        """The model's state besides the variables that Keras lists; called when a unit ends. Raises
        ``TaskError`` naming a value that cannot be carried."""
        assert self._held is not None
        state = self._held.state(self._groups()["model"])
        self.reusable = not any(state["optimizers"]) and state["attributes"] == _NOTHING_CHANGED
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

    def described(self) -> dict[str, dict[str, Any]]:
        """Model and optimizer as ``model_fn`` has made them: the configuration of model and optimizer, and
        all values, by path."""
        compiled = _paths(_own_config(self.model.get_compile_config))
        return {
            "model": {**_paths(_own_config(self.model.get_config)), **_arrays(_named(self.model.variables))},
            "optimizer": _paths(_own_config(self.model.optimizer.get_config)),
            "compile": {path: value for path, value in compiled.items() if not path.startswith("optimizer")},
        }

    @property
    def averages(self) -> bool:
        """Whether a ``fit`` ends with averaged weights."""
        optimizer = getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)
        return bool(getattr(optimizer, "use_ema", False))

    def metrics(self) -> dict[str, Any]:
        """The arrays of the metrics."""
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


def _own_config(get_config: Callable[[], Any]) -> Any:
    """The configuration of a part of Keras. A part without one counts as different from any other."""
    try:
        return get_config() or {}
    except (NotImplementedError, TypeError, ValueError):
        return {"get_config": object()}


def _paths(tree: Any, path: str = "") -> dict[str, Any]:
    """The leaves of nested dicts by path."""
    if not isinstance(tree, Mapping) or not tree:
        return {path: tree}
    return {p: v for key, item in tree.items() for p, v in _paths(item, f"{path}.{key}".lstrip(".")).items()}


def _named(variables: Any) -> dict[str, Any]:
    """The variables by path; the number in the list tells equal paths apart."""
    named: dict[str, Any] = {}
    for number, variable in enumerate(variables):
        path = variable.path
        named[f"{path}.{number}" if path in named else path] = variable
    return named


def _arrays(variables: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.array(keras.ops.convert_to_numpy(variable)) for name, variable in variables.items()}
