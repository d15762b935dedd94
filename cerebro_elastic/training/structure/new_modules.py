"""Creates modules that training has added to a model, without unpickling and without running a constructor.

A new module is a copy of one of its class in the model as built, or an empty instance of its class. It then
gets the plain attributes of the original. Its class must be one of torch's own layers, or be defined in a
file that a class of the model is from: nothing else is made from a name in a checkpoint.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from cerebro_elastic.checkpoint.tree import flatten
from cerebro_elastic.errors import CheckpointError, TaskError
from cerebro_elastic.system.torch_internals import MODULE_ATTRIBUTES, buffers_of, modules_of, parameters_of
from cerebro_elastic.training._torch_internals import CALL_HOOK_TABLES, RECURRENT_ATTRIBUTES, hooks_of
from cerebro_elastic.training.equality import values_equal
from cerebro_elastic.training.objects.value_types import name_of

_OWN = MODULE_ATTRIBUTES | RECURRENT_ATTRIBUTES
"""Attributes that are no plain attributes of a user's."""


_LAYERS = "torch.nn.modules."


class ModuleFactory:
    """Describes how the new modules of ``model`` can be created. ``kept`` are the paths of the modules that
    are as built."""

    def __init__(self, model: nn.Module, kept: Iterable[str]) -> None:
        self._model = model
        self._modules = dict(model.named_modules())
        self._kept = {path: self._modules[path] for path in kept if path in self._modules}
        self._classes = _classes(self._kept.values())

    def blueprint(self, path: str) -> dict[str, Any]:
        """The argument by which ``create`` can make the module at ``path``; raises ``TaskError`` if it
        cannot."""
        module = self._modules[path]
        plain, other = _attributes(module)
        hooks = any(hooks_of(module, table) for table in CALL_HOOK_TABLES)
        if not hooks and not other and name_of(type(module)) in self._classes:
            return {"like": None, "attributes": plain}
        for name, kept in self._kept.items() if not hooks else ():
            if type(kept) is type(module) and values_equal(other, _attributes(kept)[1]):
                return {"like": name, "attributes": plain}
        unknown = f"the class {name_of(type(module))}"
        obstacle = "hooks" if hooks else ", ".join(sorted(other)) or unknown
        raise TaskError(
            f"{type(self._model).__name__}.{path} became a {type(module).__name__} during training, which "
            f"cannot be made again in the next unit, because of {obstacle}: make it in the constructor and "
            "begin to use it later, or build it of torch's layers and plain attributes"
        )


def create(kind: str, blueprint: Mapping[str, Any], built: Mapping[str, nn.Module]) -> nn.Module:
    """A module of the class named ``kind``, without tensors and modules, for a model with the modules
    ``built``."""
    if blueprint["like"] is not None:
        like = built[blueprint["like"]]
        inside = [part for table in _tables(like) for part in table.values()]
        module = copy.deepcopy(like, {id(part): None for part in inside if part is not None})
        for table in _tables(module):
            table.clear()
    else:
        classes = _classes(built.values())
        if kind not in classes:
            raise CheckpointError(
                f"the checkpoint's model has a {kind}, which the code of this one does not have"
            )
        module = classes[kind].__new__(classes[kind])
        nn.Module.__init__(module)
    vars(module).update(copy.deepcopy(blueprint["attributes"]))
    return module


def _tables(module: nn.Module) -> tuple[dict[str, Any], ...]:
    return modules_of(module), parameters_of(module), buffers_of(module)


def _classes(modules: Iterable[nn.Module]) -> dict[str, type[nn.Module]]:
    files = {type(module).__module__ for module in modules}
    loaded = [
        vars(file) for name, file in list(sys.modules.items()) if name in files or name.startswith(_LAYERS)
    ]
    kinds = (kind for names in loaded for kind in list(names.values()))
    return {name_of(kind): kind for kind in kinds if isinstance(kind, type) and issubclass(kind, nn.Module)}


def _attributes(module: nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """The attributes of a module: plain ones, and others."""
    plain, other = dict[str, Any](), dict[str, Any]()
    for name, value in _kept_by(module).items():
        if name not in _OWN:
            (plain if _is_plain(value) else other)[name] = value
    return plain, other


def _kept_by(module: nn.Module) -> Mapping[str, Any]:
    """The attributes that a copy has: a class may leave out what it makes anew."""
    if type(module).__getstate__ is object.__getstate__:
        return vars(module)
    try:
        state = module.__getstate__()  # type: ignore[no-untyped-call]
    except Exception:  # some refuse, such as parametrized ones
        return vars(module)
    return state if isinstance(state, dict) else vars(module)


def _is_plain(value: Any) -> bool:
    try:
        flatten({"value": value})
    except CheckpointError:
        return False
    return True
