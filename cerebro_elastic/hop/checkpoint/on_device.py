"""Copies of bases on an accelerator: they stay there from unit to unit, so that a base crosses the bus once.

A copy has the sum of its words, weighed by their places. That is computed on the device before the next unit
takes the copy, and before a state is saved: whoever has written to it, past torch's version counters, too,
has changed the sum. Then the copy is forgotten; the state has its own bytes as ever.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cerebro_elastic.hop.checkpoint import bases
from cerebro_elastic.hop.checkpoint.manifest import Still

if TYPE_CHECKING:
    from torch import Tensor, device

_WORDS = 1 << 20
"""How many words are weighed at once."""
_FACTOR, _MIX = 0x5851F42D4C957F2D, 0x14057B7EF767814F


@dataclass(frozen=True, slots=True)
class _Copy:
    on_host: Tensor
    """The base's tensor, mapped."""
    on_device: Tensor
    sum: int
    """Of its words (``_sum``) when it was copied."""

    @property
    def same(self) -> bool:
        """Whether nobody has written to it."""
        return _sum(self.on_device) == self.sum

    def has_the_form_of(self, tensor: Tensor) -> bool:
        one, other = self.on_device, tensor
        return (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride())


_copies: dict[Still, _Copy] = {}


def keep_copies_of(stays: Collection[Still]) -> None:
    """Forget the copies of all other tensors."""
    for still in _copies.keys() - set(stays):
        del _copies[still]


def copies_bytes() -> int:
    """The bytes of all copies."""
    return sum(copy.on_device.nbytes for copy in _copies.values())


def copied(tensor: Tensor, device: device) -> Tensor:
    """A tensor of the host on the device; if it is one of a base, in the copy that units share."""
    still = _still(tensor)
    if still is None:
        return tensor.to(device)
    copy = _copies.get(still)
    if copy is None or copy.on_device.device != device or not copy.has_the_form_of(tensor) or not copy.same:
        _copies.pop(still, None)  # first its memory
        on_device = tensor.to(device)
        _copies[still] = copy = _Copy(tensor, on_device, _sum(on_device))
    return copy.on_device


def is_copy(own: Tensor, tensor: Tensor) -> bool:
    """Whether ``own`` lies in the copy of ``tensor``, as it was or not."""
    still = _still(tensor) if _copies else None
    return still in _copies and _copies[still].on_device.data_ptr() == own.data_ptr()


def _still(tensor: Tensor) -> Still | None:
    """The tensor of a base that this one is."""
    on_host = bases.any_mapped() and tensor.device.type == "cpu"
    whole = on_host and tensor.untyped_storage().nbytes() == tensor.nbytes
    return bases.mapped_as(bases.bytes_of(_flat(tensor))) if whole else None


def on_host(tensor: Tensor) -> Tensor:
    """The tensor on the host: the mapped one, if it is a copy of that."""
    if tensor.device.type != "cpu":
        for still, copy in _copies.items():
            if copy.on_device.data_ptr() == tensor.data_ptr() and copy.on_device.nbytes == tensor.nbytes:
                if copy.on_device.dtype == tensor.dtype and copy.same:
                    return copy.on_host.as_strided(tensor.shape, tensor.stride())
                del _copies[still]
                break
    return tensor.cpu()


def _flat(tensor: Tensor) -> Tensor:
    """A dense tensor's elements in the order of its memory."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))


def _sum(tensor: Tensor) -> int:
    """Of the tensor's words of eight bytes, each times an odd number that its place gives, modulo 2**64."""
    import torch

    flat = _flat(tensor).view(torch.uint8)
    whole = len(flat) // 8 * 8
    words = flat[:whole].view(torch.int64)
    places = torch.arange(min(_WORDS, max(len(words), 8)), device=tensor.device)
    weights = (places * _FACTOR + _MIX) * (places * _MIX + _FACTOR) | 1
    total = (flat[whole:].long() * weights[: len(flat) - whole]).sum()
    for part in torch.split(words, _WORDS):
        total = total * _FACTOR + (part * weights[: len(part)]).sum()
    return int(total)
