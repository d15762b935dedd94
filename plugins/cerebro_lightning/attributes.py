"""What modules and callbacks keep in plain attributes: carried, or refused, never lost silently.

An ordinary fit keeps such attributes in memory; a config that hops has to carry them. What is not
plain is taken to be a constant that the constructor or a set-up hook makes anew for every unit;
assigning another such value during training is refused, because it would be lost at the next hop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property
from types import MethodType
from typing import Any

import torch
from torch import nn

from cerebro_elastic.errors import TaskError
from cerebro_lightning.plain import (
    Carrier,
    NotPlain,
    Tree,
    own_attributes,
    restore_attributes,
    restore_module,
)


class Attributes:
    """The attributes of ``owner``: a module with all its parts, or a callback.

    ``foreign`` are objects that the owner may refer to and that are carried elsewhere or not at all,
    ``marks`` names of attributes that others have hung on it.
    """

    def __init__(
        self, owner: object, foreign: Iterable[object] = (), marks: frozenset[str] = frozenset()
    ) -> None:
        self._owner = owner
        self._carrier = Carrier(foreign, marks)
        self._marks = marks
        self._constants: dict[str, Any] = {}

    def restore(self, tree: Tree, device: torch.device) -> None:
        """Give the owner the attributes that it had when ``tree`` was carried."""
        try:
            if isinstance(self._owner, nn.Module):
                restore_module(self._owner, tree, device, self._marks)
            else:
                restore_attributes(self._owner, tree, device, self._marks)
        except NotPlain as exc:
            raise TaskError(
                f"{type(self._owner).__name__}, attribute {exc}: it cannot be given back what it held after "
                "the last unit; make the object in the constructor or in setup(), or keep plain values"
            ) from None

    def watch(self) -> None:
        """Remember what is not plain, for ``carry`` to compare with."""
        self._constants = self._not_plain(self._tree())

    def carry(self, changes_allowed: bool = False, new: Collection[str] = ()) -> Tree:
        """The attributes' tree. Raises ``TaskError`` if a value that is not plain was assigned since
        ``watch``, unless ``changes_allowed``: after a config's last unit nothing hops. The parts with the
        paths ``new`` were added since, and will be again."""
        tree = self._tree()
        for name, value in self._not_plain(tree).items():
            if (
                not changes_allowed
                and name.rpartition(".")[0] not in new
                and not _same(self._constants.get(name), value)
            ):
                raise TaskError(
                    f"{type(self._owner).__name__}.{name} was set to a {type(value).__qualname__} during "
                    "training, which cannot hop to another node: keep plain values and tensors, or give its "
                    "class state_dict and load_state_dict and make it in the constructor, or set the "
                    "attribute to None before the batch ends"
                )
        return tree

    def _tree(self) -> Tree:
        if isinstance(self._owner, nn.Module):
            return self._carrier.module(self._owner)
        return self._carrier.attributes(self._owner)

    def _not_plain(self, tree: Tree) -> dict[str, Any]:
        parts: dict[str, object] = {"": self._owner}
        trees = {"": tree}
        if isinstance(self._owner, nn.Module):
            parts, trees = dict(self._owner.named_modules()), tree["attributes"]
        return {
            f"{path}.{name}".lstrip("."): own_attributes(part, self._marks)[name]
            for path, part in parts.items()
            for name in trees[path]["other"]
            if not isinstance(getattr(type(part), name, None), cached_property)
        }


def _same(before: object, now: object) -> bool:
    return now is before or (isinstance(now, MethodType) and now == before)
