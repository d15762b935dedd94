"""The state of torch's dynamic rendezvous, which torch pickles into its backend, and unpickles from there:
whoever could write it would run code in every agent. Here only what such a state consists of gets through.
"""

from __future__ import annotations

import io
import pickle
from datetime import datetime, timedelta, timezone
from typing import Any

# Private to torch: what its handler reads from a backend and writes to it.
from torch.distributed.elastic.rendezvous.api import RendezvousStateError
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    RendezvousBackend,
    _NodeDesc,
    _RendezvousState,
)

_TIMES: dict[tuple[str, str], type] = {
    ("datetime", kind.__name__): kind for kind in (datetime, timedelta, timezone)
}


class PlainState(RendezvousBackend):
    """``backend``, of which only states are believed that are nothing but states. Raises
    ``RendezvousStateError`` for others."""

    def __init__(self, backend: RendezvousBackend, where: str) -> None:
        self._backend = backend
        self._where = where

    @property
    def name(self) -> str:
        return self._backend.name

    def get_state(self) -> tuple[bytes, Any] | None:
        present = self._backend.get_state()
        return present and (self._plain(present[0]), present[1])

    def set_state(self, state: bytes, token: Any | None = None) -> tuple[bytes, Any, bool] | None:
        present = self._backend.set_state(state, token)
        return present and (self._plain(present[0]), *present[1:])

    def _plain(self, state: bytes) -> bytes:
        try:
            return plain(state)
        except Exception as exc:  # whatever a forged pickle makes of the unpickler
            raise RendezvousStateError(
                f"what lies in etcd under {self._where} is no state of a rendezvous: {exc}. Somebody else "
                f"writes there: give etcd a login, and the job another --rdzv-id"
            ) from exc


def plain(state: bytes) -> bytes:
    """A pickled state, pickled anew from its parts after each was found to be what it must be. Raises
    ``ValueError``, or what the unpickler raises, for anything else."""
    return pickle.dumps(_state(_Unpickler(io.BytesIO(state)).load()))


class _Unpickler(pickle.Unpickler):
    """Makes nothing but times and shapes, which are classes of this one time: a pickle can change a class."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)

        shapes = [(kind.__module__, kind.__name__) for kind in (_RendezvousState, _NodeDesc)]
        self._allowed = {**_TIMES, **{(module, name): type(name, (), {}) for module, name in shapes}}

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._allowed[module, name]
        except KeyError:
            raise ValueError(f"it names {module}.{name}") from None


def _state(found: Any) -> _RendezvousState:
    """torch's own, from what was read as one."""
    state = _RendezvousState()
    values = vars(found)
    if type(found).__name__ != _RendezvousState.__name__ or set(values) != set(vars(state)):
        raise ValueError(f"a {type(found).__name__} with {', '.join(sorted(values))}")
    state.round = _a(int, values["round"])
    state.complete = _a(bool, values["complete"])
    state.closed = _a(bool, values["closed"])
    state.deadline = None if values["deadline"] is None else _a(datetime, values["deadline"])
    state.participants = {_node(n): _a(int, rank) for n, rank in _a(dict, values["participants"]).items()}
    state.wait_list = {_node(n) for n in _a(set, values["wait_list"])}
    state.redundancy_list = {_node(n) for n in _a(set, values["redundancy_list"])}
    beats = _a(dict, values["last_heartbeats"])
    state.last_heartbeats = {_node(n): _a(datetime, beat) for n, beat in beats.items()}
    return state


def _node(found: Any) -> _NodeDesc:
    values = vars(found)
    return _NodeDesc(_a(str, values["addr"]), _a(int, values["pid"]), _a(int, values["local_id"]))


def _a(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"a {type(value).__name__} stands for a {kind.__name__}")
    return value
