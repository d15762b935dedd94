"""The leaderboard in the terminal, why configs failed, and values as people read them."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby, pairwise
from pathlib import Path
from statistics import fmean
from textwrap import shorten
from typing import Any

from rich.table import Table
from rich.text import Text

from cerebro_elastic.core.model.attempts import Failure, FailureKind, Resources
from cerebro_elastic.core.model.configs import Config, HParams, Status
from cerebro_elastic.core.model.units import Measurement
from cerebro_elastic.recipes import Objective
from cerebro_elastic.reporting.results import ConfigResult
from cerebro_elastic.reporting.terminal import plain_table
from cerebro_elastic.system.explanations import frames_first, shortened
from cerebro_elastic.system.words import counted, hparams_text, number

_BARS = "▁▂▃▄▅▆▇█"
_NAMED = 5
"""The number of configs named that failed for one reason."""
STYLES = {Status.LIVE: "", Status.FINISHED: "green", Status.STOPPED: "yellow", Status.FAILED: "red"}


def added_text(new: Config, like: str | None, start: str) -> str:
    """The start of a new config, which begins (``start``) with a state of the config ``like``, and its
    hyper-parameters."""
    begins = "from scratch" if new.parent is None else f"in epoch {new.epoch + 1} with the state of {like}"
    if new.parent is None and start == "here":
        begins += f", as {like} has no state yet"
    return f"{new.seen_as} is added and begins {begins}: {hparams_text(new.hparams)}"


def brief(text: str, most: int = 200) -> str:
    """A message on one line of at most ``most`` characters."""
    return shorten(text, most, placeholder=" ...")


def sparkline(values: Sequence[float], width: int = 12) -> str:
    """A curve in at most ``width`` characters. A longer curve is shown by the means of neighbouring values,
    and a value that is not finite is a gap."""
    means = [_mean(part) for part in _slices(values, width)]
    finite = [mean for mean in means if mean is not None]
    if not finite:
        return ""
    low, span = min(finite), (max(finite) - min(finite)) or 1.0
    return "".join(
        " " if mean is None else _BARS[round((mean - low) / span * (len(_BARS) - 1))] for mean in means
    )


def _slices(values: Sequence[float], most: int) -> list[Sequence[float]]:
    """``values`` in at most ``most`` parts whose lengths differ by at most one."""
    count = min(len(values), most)
    ends = [i * len(values) // count for i in range(count + 1)] if count else []
    return [values[start:end] for start, end in pairwise(ends)]


def _mean(values: Sequence[float]) -> float | None:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else None


def shared_hparams(points: Sequence[HParams]) -> dict[str, Any]:
    """The values shared by all of several configs: a table has no room to repeat them in each row."""
    first, *others = points or [{}]
    shared = ((name, value) for name, value in first.items() if others)
    return {name: value for name, value in shared if all(value == point.get(name) for point in others)}


def own_text(hparams: HParams, shared: Container[str]) -> str:
    """A config's hyper-parameters that are not ``shared``."""
    return hparams_text({name: value for name, value in hparams.items() if name not in shared})


def leaderboard_table(rows: Sequence[ConfigResult], metric: str, most: int = 20) -> Table:
    """The best ``most`` configs, the best first."""
    shown = f", the best {most} of {len(rows)} configs" if len(rows) > most else ""
    shared = shared_hparams([row.hparams for row in rows])
    common = f"; all have {hparams_text(shared)}" if shared else ""
    table = plain_table(
        *("#", "config", "hyper-parameters", metric, "epoch", "curve", "status"),
        right=("#", metric, "epoch"),
        fixed=("config", "epoch", "curve", "status"),
        title=f"\nLeaderboard by {metric}{shown}{common}",
        title_justify="left",
    )
    for place, row in enumerate(rows[:most], start=1):
        table.add_row(
            str(place),
            row.config,
            own_text(row.hparams, shared),
            row.best_text or "-",
            "-" if row.best_epoch is None else f"{row.best_epoch}/{row.epochs}",
            sparkline([value for _, value in row.values(metric)]),
            Text(row.status.value, STYLES[row.status]),
        )
    return table


def spread_text(row: ConfigResult) -> str:
    """``mean 0.91 of 5 trainings, 95 % interval 0.90 to 0.92``, for a config with several."""
    if row.best is None:
        return ""
    of = f"mean {row.best:.4g} of {counted(len(row.scores), 'training')}"
    if row.interval is None:
        return of
    return f"{of}, 95 % interval {row.best - row.interval:.4g} to {row.best + row.interval:.4g}"


def front_table(rows: Sequence[ConfigResult], objectives: Sequence[Objective], of: int) -> Table:
    """The configs of the front, with their values; ``of`` is the number of all configs."""
    named = ", ".join(f"{each.metric} ({each.mode})" for each in objectives)
    table = plain_table(
        *("config", "hyper-parameters", *(each.metric for each in objectives)),
        fixed=("config",),
        title=f"\nFront of {named}: {len(rows)} of {counted(of, 'config')}, surpassed by no other in all",
        title_justify="left",
    )
    for row in rows:
        assert row.best_place is not None
        values = (number(row.curve[row.best_place][each.metric]) for each in objectives)
        table.add_row(row.config, hparams_text(row.hparams), *values)
    return table


def measured_text(found: Measurement, metric: str) -> str:
    """A metric on the test set, with its interval if it has one: ``0.9312 [0.9103, 0.95]``."""
    value, ends = found.metrics[metric], found.intervals.get(metric)
    return number(value) if ends is None else f"{number(value)} [{number(ends[0])}, {number(ends[1])}]"


def measured_by(found: Measurement) -> str:
    """When a model was measured, and by whom."""
    return day_text(found.at) + (f" by {found.by}" if found.by else "")


def measured_rows(found: Sequence[Measurement]) -> list[tuple[str, dict[str, str], Measurement | None]]:
    """The rows of a table of the test set: name, metrics, and the measurement. For a config with several
    trainings, their means precede its models."""
    rows: list[tuple[str, dict[str, str], Measurement | None]] = []
    for (name, _), together in groupby(found, key=lambda each: (each.config.partition(".")[0], each.at)):
        models = list(together)
        if models[1:]:
            known = [metric for metric in models[0].metrics if all(metric in m.metrics for m in models)]
            means = {metric: number(fmean(each.metrics[metric] for each in models)) for metric in known}
            rows.append((f"{name}, mean of {len(models)}", means, None))
        rows += [(each.config, {m: measured_text(each, m) for m in each.metrics}, each) for each in models]
    return rows


def measured_table(found: Sequence[Measurement]) -> Table:
    """The metrics of models on the test set."""
    rows = max(each.rows for each in found)
    title = f"\nTest set of {counted(rows, 'row')}" if rows else "\nTest set"
    names = sorted({name for each in found for name in each.metrics})
    columns = ("config", "epoch", *names)
    table = plain_table(*columns, fixed=columns, title=title, title_justify="left")
    for name, values, each in measured_rows(found):
        table.add_row(name, str(each.epoch) if each else "", *(values.get(metric, "-") for metric in names))
    return table


def measured_note(found: Sequence[Measurement]) -> str:
    """When the models of a table were measured and by whom, and the meaning of its brackets."""
    times = dict.fromkeys(map(measured_by, found))
    return (
        f"Measured {'; '.join(times)}. In brackets: the 95 % interval by bootstrap over rows, where a metric "
        "is a mean over rows."
    )


def clock_text(seconds: float) -> str:
    """``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def money_text(amount: float) -> str:
    """``0.0696``, ``12.3`` or ``1234``: three digits, and all digits before the point."""
    return f"{amount:.3g}" if amount < 999.5 else f"{amount:.0f}"


def day_text(wall: float) -> str:
    """A moment of wall-clock time: ``2026-11-26 14:03 UTC``, the same on all machines."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%d %H:%M UTC")


def time_text(wall: float) -> str:
    """A moment of wall-clock time in this time zone: ``14:03:59``."""
    return datetime.fromtimestamp(wall).astimezone().strftime("%H:%M:%S")


def bytes_text(count: float) -> str:
    """``81.5 KB``: powers of a thousand, three digits."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} PB" if count < 999.5 else f"{count / 1000:.4g} EB"


def resources_text(taken: Resources) -> str:
    """``cpu 98%, 512 MB; gpu 87%, 12 GB``; empty before the first unit."""
    if not taken.memory_bytes:
        return ""
    host = f"cpu {taken.cpu:.0%}, {bytes_text(taken.memory_bytes)}"
    if not taken.gpu_bytes:
        return host
    at_work = f"{taken.gpu:.0%}, " if taken.gpu else ""
    return f"{host}; gpu {at_work}{bytes_text(taken.gpu_bytes)}"


def failure_texts(configs: Iterable[Config], logs: Path | None) -> Iterator[str]:
    """A text for each reason for which configs failed: the configs, the user's own lines and the error, and
    the node's full log below ``logs``, if that file exists."""
    configs_by_text: dict[str, list[str]] = {}
    node_by_text: dict[str, str] = {}
    for config in sorted(configs, key=lambda config: config.id):
        if config.status is not Status.FAILED:
            continue
        text, last = why_failed(config), _last_failure(config)
        configs_by_text.setdefault(text, []).append(config.id)
        if last is not None:
            node_by_text.setdefault(text, last.node)
    for text, names in configs_by_text.items():
        log = None if logs is None else logs / f"{node_by_text.get(text)}.log"
        where = f"\n  all of it: {log}" if log is not None and log.is_file() else ""
        yield f"{_names(names)} failed: {text}{where}"


def why_failed(config: Config) -> str:
    """Why a config failed, for people: the user's own lines, nearest first, then the error."""
    last = _last_failure(config)
    if last is None:
        return frames_first(shortened(config.reason))
    kind = "" if last.kind is FailureKind.EXCEPTION else f"{last.kind.value}: "
    return frames_first(kind + shortened(last.story))


def _last_failure(config: Config) -> Failure | None:
    """The failure that ended the config, if it was one."""
    return next((f for f in reversed(config.failures) if f.story in config.reason), None)


def _names(configs: Sequence[str]) -> str:
    more = len(configs) - _NAMED
    return ", ".join(configs[:_NAMED]) + (f" and {counted(more, 'other')}" if more > 0 else "")
