"""The state of torch's dynamic rendezvous, checked before torch unpickles it.

torch pickles its state into a backend and unpickles it from there. Anybody who writes to the backend could
run code in every agent. Here only a state that consists of nothing but a state's parts gets through.
"""

from __future__ import annotations

import io
import pickle
from datetime import datetime, timedelta, timezone
from typing import Any

from torch.distributed.elastic.rendezvous.api import RendezvousStateError
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend

from cerebro_elastic.rendezvous._torch_internals import NodeDescription, RendezvousState

_TIMES: dict[tuple[str, str], type] = {
    ("datetime", kind.__name__): kind for kind in (datetime, timedelta, timezone)
}


class CheckedStateBackend(RendezvousBackend):
    """A backend whose states are checked. ``location`` names the backend's key in errors.

    Raises:
        RendezvousStateError: The backend holds anything else than a state.
    """

    def __init__(self, backend: RendezvousBackend, location: str) -> None:
        self._backend = backend
        self._location = location

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
            return checked_state(state)
        except Exception as exc:  # whatever a forged pickle makes of the unpickler
            raise RendezvousStateError(
                f"what lies in etcd under {self._location} is no state of a rendezvous: {exc}. Somebody else "
                f"writes there: give etcd a login, and the job another --rdzv-id"
            ) from exc


def checked_state(state: bytes) -> bytes:
    """Check each part of a pickled state, and pickle it anew from its parts.

    Raises:
        Exception: It is no state: ``ValueError``, or what the unpickler raises.
    """
    return pickle.dumps(_state(_Unpickler(io.BytesIO(state)).load()))


class _Unpickler(pickle.Unpickler):
    """Makes nothing but times and stand-ins for torch's classes. The stand-ins are new for each pickle, for a
    pickle can change a class."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)

        private = [(kind.__module__, kind.__name__) for kind in (RendezvousState, NodeDescription)]
        self._allowed = {**_TIMES, **{(module, name): type(name, (), {}) for module, name in private}}

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._allowed[module, name]
        except KeyError:
            raise ValueError(f"it names {module}.{name}") from None


def _state(read: Any) -> RendezvousState:
    """torch's own state, from the stand-in that was read."""
    state = RendezvousState()
    values = vars(read)
    if type(read).__name__ != RendezvousState.__name__ or set(values) != set(vars(state)):
        raise ValueError(f"a {type(read).__name__} with {', '.join(sorted(values))}")
    state.round = _exactly(int, values["round"])
    state.complete = _exactly(bool, values["complete"])
    state.closed = _exactly(bool, values["closed"])
    state.deadline = None if values["deadline"] is None else _exactly(datetime, values["deadline"])
    state.participants = {
        _node(n): _exactly(int, rank) for n, rank in _exactly(dict, values["participants"]).items()
    }
    state.wait_list = {_node(n) for n in _exactly(set, values["wait_list"])}
    state.redundancy_list = {_node(n) for n in _exactly(set, values["redundancy_list"])}
    beats = _exactly(dict, values["last_heartbeats"])
    state.last_heartbeats = {_node(n): _exactly(datetime, beat) for n, beat in beats.items()}
    return state


def _node(read: Any) -> NodeDescription:
    values = vars(read)
    return NodeDescription(
        _exactly(str, values["addr"]), _exactly(int, values["pid"]), _exactly(int, values["local_id"])
    )


def _exactly(kind: type, value: Any) -> Any:
    """``value``, which must be of this very type."""
    if type(value) is not kind:
        raise ValueError(f"a {type(value).__name__} stands for a {kind.__name__}")
    return value
