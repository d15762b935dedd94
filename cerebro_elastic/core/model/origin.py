"""Where a checkpoint comes from: what its manifest says of that, and the digests by which it says it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.core.model.values import Basis, HParams, RecordHead, Spec, Unit, Visit


@dataclass(frozen=True, slots=True)
class Origin:
    """The visit that wrote a checkpoint, of which run, and what came of it.

    ``hparams`` is the digest of the config's hyper-parameters, ``input`` that of the checkpoint that it began
    with. ``record`` is the head of the leader's record when the unit was assigned (``None``: the checkpoint
    was made again after damage). All else is the visit's.
    """

    basis: Basis
    hparams: str
    unit: Unit
    k: int
    attempt: int
    input: str | None
    samples: int
    batches: int
    skip: int
    whole: bool
    done: bool
    metrics: Mapping[str, float] = field(default_factory=dict)
    log_digest: str = ""
    record: RecordHead | None = None


def origin_of(basis: Basis, hparams: HParams, visit: Visit, record: RecordHead | None) -> Origin:
    """The origin of the checkpoint that ``visit`` of a config with ``hparams`` writes."""
    return Origin(
        basis=basis,
        hparams=values_digest(hparams),
        unit=visit.unit,
        k=visit.k,
        attempt=visit.attempt,
        input=visit.input.digest if visit.input else None,
        samples=visit.samples,
        batches=visit.batches,
        skip=visit.skip,
        whole=visit.whole,
        done=visit.done,
        metrics=visit.metrics,
        log_digest=visit.log_digest,
        record=record,
    )


def basis_of(spec: Spec) -> Basis:
    """What a run of ``spec`` is made from."""
    return Basis(spec.plan.run, _sha256(encode(replace(spec, code={}))), values_digest(spec.code))


def values_digest(values: Mapping[str, Any]) -> str:
    """The digest of JSON values by name."""
    return _sha256(json.dumps(dict(values), sort_keys=True, separators=(",", ":")))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
