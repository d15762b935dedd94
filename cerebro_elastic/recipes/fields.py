"""The base of all sections of a recipe."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf
from typing import Annotated, Literal, NamedTuple, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, PlainSerializer

from cerebro_elastic import registry
from cerebro_elastic.config import check_endpoint
from cerebro_elastic.errors import StoreError, did_you_mean
from cerebro_elastic.system.addresses import place_of
from cerebro_elastic.system.words import byte_count


class Section(BaseModel):
    """A frozen value without unknown keys and without silent conversions between types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


RUN_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
"""The pattern of a run's name, which names a folder and keys in etcd."""
NAME_RULE = "use letters from a to z, digits, '.', '_' and '-', at most 100, beginning with a letter or digit"

MOST_NODES = 1000
"""The most nodes of a run. A decision looks at all of them; larger numbers are untested."""


MOST_CONFIGS = 10_000
"""The most configs of a run. A search looks at all of them; larger numbers are untested."""


class NodeRange(NamedTuple):
    """How many nodes a run may have."""

    min: int
    """The number of nodes at the start."""
    max: int
    """The most nodes that it uses."""
    auto: bool = False
    """Whether the machine says how many: one for each accelerator, or for as many as a node has ranks."""

    def __str__(self) -> str:
        if self.auto:
            return "auto"
        return str(self.min) if self.min == self.max else f"{self.min}:{self.max}"

    def times(self, nodes: int) -> str:
        """As a recipe's ``nodes``: for this range of hosts with ``nodes`` nodes each."""
        return str(NodeRange(self.min * nodes, self.max * nodes))


AUTO_NODES = NodeRange(1, 1, auto=True)


def node_range(value: object) -> NodeRange:
    """``2``, ``"1:8"`` or ``"auto"``; raises ``ValueError`` for anything else."""
    if str(value) == str(AUTO_NODES):
        return AUTO_NODES
    match = re.fullmatch(r"(\d+)(?::(\d+))?", str(value))
    if match is not None and max(map(len, match.groups(""))) <= len(str(MOST_NODES)):
        low = int(match[1])
        high = int(match[2] or low)
        if 1 <= low <= high <= MOST_NODES:
            return NodeRange(low, high)
    raise ValueError(f"nodes is a number from 1 to {MOST_NODES}, or a range 'min:max' such as '1:8', or auto")


def _object_reference(value: object) -> str:
    """``module:name``, as ``registry.import_object`` takes it."""
    if isinstance(value, str) and registry.is_reference(value):
        return value
    raise ValueError("expected 'module:name', e.g. 'my_model:Net' for Net in my_model.py beside the recipe")


def callback(value: object) -> object:
    """A callback's name, or ``{class: name, args: {...}}``. The task's adapter checks that it exists."""
    if isinstance(value, Mapping):
        well_formed = isinstance(value.get("class"), str) and set(value) <= {"class", "args"}
        well_formed &= isinstance(value.get("args", {}), Mapping)
    else:
        well_formed = isinstance(value, str)
    if not well_formed:
        raise ValueError("expected a name, EarlyStopping or 'module:name', or {class: name, args: {...}}")
    return value


def registered(group: str) -> BeforeValidator:
    """A validator: the value is a name in ``group`` of the registry. It imports nothing."""

    def check(value: object) -> object:
        known = registry.names(group)
        if value not in known:
            raise ValueError(f"unknown name; {did_you_mean(str(value), known)}")
        return value

    return BeforeValidator(check)


def _installed(value: object) -> object:
    """A scheduler whose packages are installed. A run would detect a missing one too late."""
    remedy = registry.missing("cerebro.schedulers", str(value))
    if remedy is not None:
        raise ValueError(f"{value} is not installed: {remedy}, or take auto")
    return value


Scheduler: TypeAlias = Annotated[str, BeforeValidator(_installed), registered("cerebro.schedulers")]
"""The name of a scheduling policy for live runs."""


def _names(value: object) -> object:
    """A list of different names, or one name."""
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list | tuple) and len(set(map(str, names))) < len(names):
        raise ValueError("a name appears twice")
    return names


def percentage(text: str) -> float | None:
    """``20%`` as 0.2; ``None`` for a text that is no percentage."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    return None if match is None else float(match[1]) / 100


def _share_or_source(value: object) -> float | str:
    """``20%`` and ``0.2`` are shares of the rows; other texts name data."""
    text = str(value)
    share = percentage(text)
    try:
        return float(text) if share is None else share
    except ValueError:
        return text


def validation_data(value: object, *, kept_for: str = "validation") -> float | str:
    """A share of the rows, or a separate source, as a recipe may have them."""
    share = percentage(value) if isinstance(value, str) else value
    if share is None:
        return str(path_or_url(value))
    if isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share < 1:
        return share
    raise ValueError(
        f"the share of rows kept for {kept_for}, from 0 to below 1 or such as 20%, or a separate source"
    )


def test_data(value: object) -> float | str | None:
    """The same for a test set, or none."""
    return None if value is None else validation_data(value, kept_for="the test set")


def _bad_rows(value: object) -> object:
    """A number of rows, or a share: a number below 1, or ``1%``."""
    limit: object = value
    if isinstance(value, str):
        limit = int(value) if value.isdecimal() else percentage(value)
    is_count = isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0
    if is_count or (isinstance(limit, float) and 0 <= limit < 1):
        return limit
    raise ValueError("give a number of rows, or a share below 100% such as 1%")


def _class_weights(value: object) -> object:
    """``balanced``, or a weight for each class."""
    weights = list(value) if isinstance(value, list | tuple) else []
    numbers = all(isinstance(w, int | float) and not isinstance(w, bool) and 0 <= w < inf for w in weights)
    if value != "balanced" and not (weights and numbers and any(weights)):
        raise ValueError(
            "expected `balanced`, or a list with a weight of at least 0 for each class: [0.5, 2.0]"
        )
    return value if value == "balanced" else tuple(map(float, weights))


def _byte_count(value: object) -> int:
    """A number of bytes, or ``20G``."""
    if not (count := _byte_count_or_none(value)):
        raise ValueError("expected a number of bytes above 0, such as 800M or 20G")
    return count


def _byte_count_or_none(value: object) -> int:
    """The same, or 0."""
    count = byte_count(str(value))
    if isinstance(value, bool) or count is None:
        raise ValueError("expected a number of bytes, such as 800M or 20G, or 0 for none")
    return count


def _run_name(value: str) -> str:
    """A name that can be a folder's and a key's."""
    if re.fullmatch(RUN_ID, value) is None:
        raise ValueError(f"it names the run's folder and keys in etcd: {NAME_RULE}")
    return value


def path_or_url(value: object) -> object:
    """A path or URL without a password: recipes are stored and shown. ``~`` is the user's home, as in a
    shell."""
    if not isinstance(value, str):
        return value
    if re.search(r"://[^/\s@]*:[^/\s]*@", value):
        raise ValueError(
            "a recipe is written down and shown, so it may hold no password: give it in the environment, or "
            "in fsspec's configuration (~/.config/fsspec)"
        )
    path = place_of(value)
    if "://" not in path and re.search(r"\$(\w|\{)", path):
        raise ValueError("a path in a recipe has no variables of the shell: write it out")
    return path


def _endpoints(value: object) -> object:
    """``HOST:PORT``, several separated by commas."""
    try:
        for endpoint in str(value).split(","):
            check_endpoint(endpoint.strip())
    except StoreError as exc:
        raise ValueError(str(exc)) from exc
    return value


Url: TypeAlias = Annotated[str, BeforeValidator(path_or_url)]
RunName: TypeAlias = Annotated[str, AfterValidator(_run_name)]
Endpoints: TypeAlias = Annotated[str, BeforeValidator(_endpoints)]
Nodes: TypeAlias = Annotated[NodeRange, BeforeValidator(node_range), PlainSerializer(str, return_type=str)]
Seed: TypeAlias = Annotated[int, Field(ge=0, lt=2**32)]
ShareOrSource: TypeAlias = Annotated[float | str, BeforeValidator(_share_or_source)]
CountOrShare: TypeAlias = Annotated[int | float, BeforeValidator(_bad_rows)]
Positive: TypeAlias = Annotated[int, Field(ge=1, lt=2**31)]
Count: TypeAlias = Annotated[int, Field(ge=0, lt=2**31)]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=1e9)]
"""Up to 30 years: clocks and timers overflow beyond."""
Epochs: TypeAlias = Annotated[int, Field(ge=1, le=99_999)]
"""The keys of visits have five digits for the epoch, and as many for the visit in it."""
Partitions: TypeAlias = Annotated[int, Field(ge=1, le=50_000)]
"""A unit that is split is several visits of its epoch, hence fewer than five digits can count."""
PerHost: TypeAlias = Annotated[int, Field(ge=1, le=1024)]
"""Processes or threads on one machine."""
Names: TypeAlias = Annotated[tuple[str, ...], Field(strict=False), BeforeValidator(_names)]
ClassWeights: TypeAlias = Annotated[
    Literal["balanced"] | Annotated[tuple[float, ...], Field(strict=False)], BeforeValidator(_class_weights)
]
Bytes: TypeAlias = Annotated[int, BeforeValidator(_byte_count)]
BytesOrNone: TypeAlias = Annotated[int, BeforeValidator(_byte_count_or_none)]
Reference: TypeAlias = Annotated[str, BeforeValidator(_object_reference)]
Arguments: TypeAlias = Mapping[str, JsonValue]
Callback: TypeAlias = Annotated[str | Mapping[str, JsonValue], BeforeValidator(callback)]
