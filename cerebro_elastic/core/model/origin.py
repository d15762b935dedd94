"""Where does a checkpoint come from? The origin in its manifest, and its digests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.run import Basis, Spec
from cerebro_elastic.core.model.units import RecordHead, Unit


@dataclass(frozen=True, slots=True)
class Origin:
    """The visit that wrote a checkpoint, and its run. Fields without a description are those of the visit."""

    basis: Basis
    hparams: str
    """The digest of the config's hyper-parameters."""
    unit: Unit
    index_in_epoch: int
    attempt: int
    input: str | None
    """The digest of the checkpoint with which the visit began."""
    samples: int
    batches: int
    skip: int
    whole: bool
    done: bool
    metrics: Mapping[str, float] = field(default_factory=dict)
    log_digest: str = ""
    record: RecordHead | None = None
    """The head of the leader's record at the unit's assignment; ``None``: the checkpoint was remade after
    damage."""


def origin_of(basis: Basis, hparams: HParams, visit: Visit, record: RecordHead | None) -> Origin:
    """The origin of the checkpoint that ``visit`` of a config with ``hparams`` writes."""
    return Origin(
        basis=basis,
        hparams=values_digest(hparams),
        unit=visit.unit,
        index_in_epoch=visit.index_in_epoch,
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
    """The digests of a run of ``spec``."""
    return Basis(spec.plan.run, _sha256(encode(replace(spec, code={}))), values_digest(spec.code))


def values_digest(values: Mapping[str, Any]) -> str:
    """The digest of JSON values by name."""
    return _sha256(json.dumps(dict(values), sort_keys=True, separators=(",", ":")))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
