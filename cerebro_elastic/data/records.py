"""What is known of the rows that have been made: how many, which are bad, and what columns they have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cerebro_elastic.data.manifest import Column
from cerebro_elastic.data.rows import BadRow, check_alike
from cerebro_elastic.data.share import Record
from cerebro_elastic.errors import DataError


@dataclass(slots=True)
class Progress:
    """How far the preparation is, in rows: ``total``, ``done``, of these ``known`` from before or from other
    machines, and ``bad``."""

    total: int
    done: int = 0
    known: int = 0
    bad: int = 0


@dataclass(slots=True)
class Records:
    """What is known of the chunks that are done."""

    limit: float
    progress: Progress
    show: Callable[[Progress], None]
    chunks: dict[str, Record] = field(default_factory=dict)

    def add(self, name: str, record: Record, now: bool) -> None:
        rows = record["good"] + len(record["bad"])
        self.chunks[name] = record
        self.progress.done += rows
        self.progress.known += 0 if now else rows
        self.progress.bad += len(record["bad"])
        self.check()
        self.show(self.progress)

    @property
    def spoilt(self) -> list[str]:
        """The chunks with bad rows."""
        return [name for name, record in self.chunks.items() if record["bad"]]

    @property
    def bad(self) -> list[BadRow]:
        return [BadRow(**row) for name in sorted(self.chunks) for row in self.chunks[name]["bad"]]

    def check(self) -> None:
        allowed = int(self.limit * self.progress.total if self.limit < 1 else self.limit)
        if self.progress.bad > allowed:
            told = "\n".join(f"  {row}" for row in self.bad[:3])
            raise DataError(
                f"{self.progress.bad} of {self.progress.done} rows are bad, {allowed} of all "
                f"{self.progress.total} may be:\n{told}\ncorrect the row function or the source, or allow "
                "more with --bad"
            )

    def columns(self) -> Sequence[Column]:
        """Those of all chunks, which must agree."""
        kinds = [
            (record["first"], [Column(c["name"], c["dtype"], tuple(c["shape"])) for c in record["columns"]])
            for _, record in sorted(self.chunks.items())
            if record["good"]
        ]
        if not kinds:
            raise DataError("no row is good: see the row function and the source")
        for first, columns in kinds[1:]:
            check_alike(kinds[0][1], kinds[0][0], columns, first)
        return kinds[0][1]
