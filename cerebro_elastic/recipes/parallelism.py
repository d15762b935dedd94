"""The recipe's ``parallelism``: the ways to train a unit on several ranks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, SerializeAsAny, ValidationInfo, WrapValidator

from cerebro_elastic import registry
from cerebro_elastic.errors import did_you_mean
from cerebro_elastic.recipes.fields import NodeRange, Positive, Section
from cerebro_elastic.system.words import counted

GROUP = "cerebro.parallel"
AUTO: Literal["auto"] = "auto"


class ParallelismSection(Section):
    """A parallelism and its options, which its factory checks.

    A plugin may derive its own section from this class, and register it under the parallelism's name in the
    entry-point group ``cerebro.parallel.sections``.
    """

    NEEDS: ClassVar[tuple[str, ...]] = ()
    """The packages that the parallelism needs, by the names under which they are imported."""
    AUTO_OPTIONS: ClassVar[Mapping[str, Any]] = {}
    """The options that it gets with ``parallelism: auto``."""

    model_config = ConfigDict(extra="allow")
    use: str
    """Its name in the entry-point group ``cerebro.parallel``."""
    ranks: Positive | None = None
    """The number of ranks that it uses; by default all that the nodes of a unit have."""

    @property
    def options(self) -> dict[str, Any]:
        """The options as the recipe has them."""
        return dict(self.model_extra or {})

    def options_in(self, root: Path) -> dict[str, Any]:  # noqa: ARG002
        """The options for the parallelism's factory. Options that are paths are resolved here, relative to
        ``root``, the recipe's folder."""
        return self.options


def section_type(name: str) -> type[ParallelismSection]:
    section: type[ParallelismSection] = registry.section(GROUP, name) or ParallelismSection
    return section


def installed() -> list[str]:
    """The parallelisms whose packages are installed: first the built-in ones, then those of plugins."""
    built_in = registry.BUILT_IN[GROUP]
    plugins = [name for name in registry.names(GROUP) if name not in built_in]
    return [name for name in (*built_in, *plugins) if not registry.missing(GROUP, name)]


def _parallelisms(value: object, _: object) -> Literal["auto"] | tuple[ParallelismSection, ...]:
    """``auto``, a name, a mapping with ``use``, or a list of those."""
    if value == AUTO:
        return AUTO
    if isinstance(value, list | tuple) and value:
        return tuple(map(_parallelism, value))
    return (_parallelism(value),)


def _parallelism(value: object) -> ParallelismSection:
    if isinstance(value, ParallelismSection):
        return value
    name = value.get("use") if isinstance(value, Mapping) else value
    known = registry.names(GROUP)
    if not isinstance(name, str):
        raise ValueError(f"a name, {{use: name, ranks: 2, ...}}, a list of these, or auto; {_choices('')}")
    if name not in known:
        raise ValueError(f"unknown name; {_choices(name)}")
    remedy = registry.missing(GROUP, name)
    if remedy is not None:
        raise ValueError(f"{name} is not installed: {remedy}")
    return section_type(name).model_validate(value if isinstance(value, Mapping) else {"use": name})


def _choices(name: str) -> str:
    """The known names, and what to install for those that lack a package."""
    known = [*registry.names(GROUP), AUTO]
    remedies = {n: registry.missing(GROUP, n) for n in known}
    missing = "".join(f"; for {n}: {remedy}" for n, remedy in remedies.items() if remedy)
    return did_you_mean(name, known) + missing


Parallelisms: TypeAlias = Annotated[
    Literal["auto"] | tuple[SerializeAsAny[ParallelismSection], ...], WrapValidator(_parallelisms)
]


def check_ranks(value: Parallelisms, info: ValidationInfo) -> Parallelisms:
    """Check that a unit's nodes have enough ranks, that all nodes of a gang are used, that the run can train
    on the nodes that it begins with, and that the task can."""
    if value == AUTO or not {"gang", "node"} <= info.data.keys():  # they are wrong themselves
        return value
    gang, ranks, task = info.data["gang"], info.data["node"].ranks, info.data.get("task")
    others = [section.use for section in value if section.use != "single"]
    if others and task is not None and task.ARRAYS == "numpy":
        raise ValueError(
            f"a unit of a task of kind {task.kind!r} is trained on one rank: leave parallelism out, or use "
            "single; configs train side by side on `nodes`"
        )
    known: list[tuple[str, int, dict[str, Any]]] = []
    for section in value:
        _check_ranks(section, gang, ranks)
        kind = section.use, ranks_of(section, gang, ranks), section.options
        if kind in known:
            raise ValueError(f"{kind[0]} on {kind[1]} ranks appears twice")
        known.append(kind)
    widest = max(nodes_of(section, gang, ranks) for section in value)
    if widest < gang:
        raise ValueError(
            f"`gang` is {gang}, and nothing here trains on more than {counted(widest, 'node')}: name a "
            "parallelism that takes their ranks, such as ddp or fsdp, or remove `gang`"
        )
    fewest, nodes = min(nodes_of(section, gang, ranks) for section in value), info.data.get("nodes")
    if nodes is not None and nodes.min < fewest:
        raise ValueError(
            f"everything here takes {fewest} nodes, and the run may begin with {nodes.min} and wait: "
            f"say `nodes: {NodeRange(fewest, nodes.max)}`, or add a parallelism that takes fewer"
        )
    return value


def _check_ranks(section: ParallelismSection, gang: int, ranks: int) -> None:
    wanted = ranks_of(section, gang, ranks)
    if section.use == "single" and wanted != 1:
        choices = ", ".join(name for name in installed() if name != "single")
        raise ValueError(f"single trains on one rank; for more take another parallelism: {choices}")
    if wanted > gang * ranks:
        raise ValueError(
            f"{section.use} on {wanted} ranks: a unit's nodes have {gang * ranks} (`gang` {gang} x "
            f"`node.ranks` {ranks}): take fewer, or `gang: {-(-wanted // ranks)}`, or set `node.ranks`"
        )
    if wanted > ranks and wanted % ranks:
        below = wanted - wanted % ranks
        raise ValueError(
            f"{section.use} on {wanted} ranks does not divide into nodes of {ranks}: take {below} or "
            f"{below + ranks}"
        )


def ranks_of(section: ParallelismSection, gang: int, ranks: int) -> int:
    """How many ranks it uses, if a unit has ``gang`` nodes with ``ranks`` ranks each."""
    return section.ranks or (1 if section.use == "single" else gang * ranks)


def nodes_of(section: ParallelismSection, gang: int, ranks: int) -> int:
    """How many nodes it uses, if a unit has ``gang`` nodes with ``ranks`` ranks each."""
    return -(-ranks_of(section, gang, ranks) // ranks)
