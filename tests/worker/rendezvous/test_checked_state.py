"""Data in the place from which torch's dynamic rendezvous unpickles its state: a state is loaded, nothing
else runs."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.api import RendezvousStateError
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _NodeDesc, _RendezvousState

from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.worker.rendezvous.dynamic import (
    CheckedStateBackend,
    EtcdBackend,
    LeasedWrites,
    checked_state,
    create,
)
from support.memory_store import MemoryStore

MODULE = _RendezvousState.__module__


def a_state() -> _RendezvousState:
    state, node = _RendezvousState(), _NodeDesc("host", 1, 2)
    state.round, state.closed, state.deadline = 3, True, datetime.now(UTC)
    state.participants[node] = 0
    state.wait_list.add(_NodeDesc("other", 2, 2))
    state.redundancy_list.add(_NodeDesc("third", 3, 1))
    state.last_heartbeats[node] = datetime.now(UTC)
    return state


@pytest.mark.parametrize("state", [a_state(), _RendezvousState()], ids=["some", "empty"])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL - 1, pickle.HIGHEST_PROTOCOL + 1))
def test_a_state_is_as_it_was(state: _RendezvousState, protocol: int) -> None:
    assert vars(pickle.loads(checked_state(pickle.dumps(state, protocol)))) == vars(state)


class _Deed:
    """Unpickled, it makes the file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self._file,)


def _within(**values: Any) -> bytes:
    state = a_state()
    vars(state).update(values)
    return pickle.dumps(state)


@pytest.mark.parametrize(
    "forged",
    [
        lambda deed: pickle.dumps(deed),
        lambda deed: _within(participants=deed),
        lambda deed: _within(wait_list={deed}),
        lambda deed: _within(last_heartbeats={_NodeDesc("h", 1, 1): deed}),
        lambda _: _within(round="1"),
        lambda _: _within(wait_list=[]),
        lambda _: _within(wait_list={"host"}),
        lambda _: _within(more=1),
        lambda _: pickle.dumps(_NodeDesc("h", 1, 1)),
        # The class itself; changed; and by a dotted name what lies behind it.
        lambda _: f"c{MODULE}\n_RendezvousState\n.".encode(),
        lambda _: f"\x80\x04c{MODULE}\n_RendezvousState\n(N}}U\x01aK\x01stb.".encode(),
        lambda _: f"\x80\x04c{MODULE}\n_RendezvousState.__init__.__globals__\n.".encode("latin-1"),
        lambda _: b"cos\nsystem\n(S'false'\ntR.",
        lambda _: b"Pid\n.",
        lambda _: b"\x82\x01.",
        lambda _: b"{",
        lambda _: b"",
    ],
)
def test_anything_else_is_refused_and_runs_nothing(forged: Callable[[_Deed], bytes], tmp_path: Path) -> None:
    state, valid = forged(_Deed(tmp_path / "done")), pickle.dumps(a_state())
    # Behind these: pickling notes names at a class.
    before = dict(vars(_RendezvousState)), dict(vars(_NodeDesc))
    store = MemoryStore()
    backend = EtcdBackend(LeasedWrites(store), "job")
    backend.set_state(state)
    seen = CheckedStateBackend(backend, backend.key)
    for look in (seen.get_state, lambda: seen.set_state(valid)):
        with pytest.raises(RendezvousStateError, match=r"/torch/elastic/rendezvous/job is no state"):
            look()
    assert list(tmp_path.iterdir()) == []
    assert before == (dict(vars(_RendezvousState)), dict(vars(_NodeDesc)))


def test_the_handler_reads_its_state_so(
    etcd: EmbeddedEtcd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")  # as `create` does
    job, (endpoint,) = uuid.uuid4().hex, etcd.settings.endpoints
    handler = create(RendezvousParameters("etcd-v3", endpoint, job, 1, 1, timeout=5))
    backend = handler._state_holder._backend
    backend._backend.set_state(pickle.dumps(_Deed(tmp_path / "done")))
    with pytest.raises(RendezvousStateError, match="Somebody else writes there"):
        handler.next_rendezvous()
    assert list(tmp_path.iterdir()) == []
