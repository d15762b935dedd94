"""MLflow: a parent run for the run, and a child for each config.

Tags identify them. A leader that takes over, and an extended run, find them by their tags and continue with
them. A visit that was not sent whole is sent again, and MLflow drops rows that it already has.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote, urlsplit

from cerebro_elastic.extending.errors import TrackerAway
from cerebro_elastic.extending.logging import ConfigEnd, EndStatus, HParams, Logged, at_home
from cerebro_trackers.arguments import MlflowArguments
from cerebro_trackers.tags import TRACKED_AS, config_tags, end_tags

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

_RUN, _IDENTITY, _CONFIG = "cerebro.run", "cerebro.identity", "cerebro.config"
_STATUS_OF: Mapping[EndStatus, str] = {
    "finished": "FINISHED",
    "failed": "FAILED",
    "stopped": "KILLED",
    "pruned": "KILLED",
}
_METRICS_AT_ONCE, _PARAMS_AT_ONCE = 900, 100
_LONGEST_NAME, _LONGEST_TAG = 250, 5000
"""MLflow's limits."""


@dataclass
class _Tracked:
    """A run in MLflow: that of a config, or the parent."""

    run_id: str
    running: bool = True
    described: bool = False
    """Whether this process has sent the config's hyper-parameters."""


class MlflowTracker:
    """Writes the logged values of a run's configs to MLflow. Errors of MLflow's client pass through.

    Args:
        run: The run's id.
        identity: Distinguishes it from another run of this id.
        folder: The folder of MLflow's database if neither ``tracking_uri`` nor the environment names one.
        tracking_uri: MLflow's server or database.
        experiment: The experiment's name.
    """

    Arguments: ClassVar[type[MlflowArguments]] = MlflowArguments
    environment: ClassVar[Mapping[str, str]] = {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
        "GIT_PYTHON_REFRESH": "quiet",
    }
    """MLflow's client should give up soon, because the record keeps the unsent values."""
    buffers: ClassVar[bool] = False

    def __init__(
        self,
        run: str,
        identity: str,
        folder: str,
        tracking_uri: str | None = None,
        experiment: str | None = None,
    ) -> None:
        uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or _database(folder)
        self._uri = _without_login(at_home(uri))
        self._experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or TRACKED_AS
        self._tags = {_RUN: run, _IDENTITY: identity}
        self._opened: tuple[MlflowClient, str] | None = None
        self._parent: _Tracked | None = None
        self._children: dict[str, _Tracked] = {}

    def write(self, logged: Logged) -> None:
        """Write a visit's rows."""
        client = self._client()[0]
        child = self._child(logged.config, logged.hparams, logged.parent, logged.start)
        self._resume(self._parent_run(logged.start))
        self._resume(child)
        metrics = list(_metrics(logged))
        for first in range(0, len(metrics), _METRICS_AT_ONCE):
            client.log_batch(child.run_id, metrics=metrics[first : first + _METRICS_AT_ONCE])

    def end(self, end: ConfigEnd) -> None:
        """Note that a config has ended; and, if it was the last one, the run, until a config continues."""
        at = time.time() if end.time is None else end.time
        child = self._child(end.config, end.hparams, end.parent, at)
        self._terminate(child, _STATUS_OF[end.status], at)
        self._tag(child.run_id, end_tags(end))
        if not any(child.running for child in self._children.values()):
            self._terminate(self._parent_run(at), "FINISHED", at)

    def close(self) -> None:
        """Nothing to close: nothing is open between two calls."""

    def _terminate(self, tracked: _Tracked, status: str, at: float) -> None:
        self._client()[0].set_terminated(tracked.run_id, status, _milliseconds(at))
        tracked.running = False

    def _client(self) -> tuple[MlflowClient, str]:
        """MLflow's client, and the id of the experiment; this run's runs in it are known afterwards."""
        if self._opened is None:
            from mlflow import MlflowClient

            client = MlflowClient(self._uri)
            experiment = self._experiment_id(client)
            self._find(client, experiment)
            self._opened = client, experiment
        return self._opened

    def _experiment_id(self, client: MlflowClient) -> str:
        known = client.get_experiment_by_name(self._experiment)
        if known is None:
            created: str = client.create_experiment(self._experiment, _artifacts(self._uri))
            return created
        if known.lifecycle_stage != "active":
            raise TrackerAway(
                f"MLflow's experiment {self._experiment!r} is deleted: restore it by `mlflow experiments "
                f"restore --experiment-id {known.experiment_id}`, or give another as MLFLOW_EXPERIMENT_NAME"
            )
        found: str = known.experiment_id
        return found

    def _find(self, client: MlflowClient, experiment: str) -> None:
        """Look for this run's runs. Of two for the same config the older one counts: a suspended leader may
        have made the other."""
        self._parent, self._children = None, {}
        found = self._own(client, experiment)
        for run in sorted(found, key=lambda run: (run.info.start_time, run.info.run_id)):
            tracked = _Tracked(run.info.run_id, run.info.status == "RUNNING")
            if (config := run.data.tags.get(_CONFIG)) is None:
                self._parent = self._parent or tracked
            else:
                self._children.setdefault(config, tracked)

    def _own(self, client: MlflowClient, experiment: str) -> Iterator[Run]:
        query, page = f"tags.`{_IDENTITY}` = '{self._tags[_IDENTITY]}'", None
        while True:
            runs = client.search_runs([experiment], query, page_token=page)
            yield from runs
            page = runs.token
            if not page:
                return

    def _resume(self, tracked: _Tracked) -> None:
        if not tracked.running:
            self._client()[0].update_run(tracked.run_id, status="RUNNING")
            tracked.running = True

    def _parent_run(self, start: float) -> _Tracked:
        client, experiment = self._client()
        if self._parent is None:
            run = client.create_run(experiment, _milliseconds(start), self._tags, self._tags[_RUN])
            self._parent = _Tracked(run.info.run_id)
        return self._parent

    def _child(self, config: str, hparams: HParams, parent: str, start: float) -> _Tracked:
        """The child of a config, with its hyper-parameters."""
        client, experiment = self._client()
        if config not in self._children:
            tags = {**self._tags, **config_tags(self._tags[_RUN], config, parent)}
            tags["mlflow.parentRunId"] = self._parent_run(start).run_id
            run = client.create_run(experiment, _milliseconds(start), tags, config)
            self._children[config] = _Tracked(run.info.run_id)
        child = self._children[config]
        if not child.described:  # a kill may have left it without them
            self._log_hparams(child.run_id, hparams)
            child.described = True
        return child

    def _log_hparams(self, run_id: str, hparams: HParams) -> None:
        from mlflow.entities import Param

        params = [Param(allowed_name(name), _text(value)) for name, value in hparams.items()]
        for first in range(0, len(params), _PARAMS_AT_ONCE):
            self._client()[0].log_batch(run_id, params=params[first : first + _PARAMS_AT_ONCE])

    def _tag(self, run_id: str, tags: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        self._client()[0].log_batch(run_id, tags=[RunTag(k, v[:_LONGEST_TAG]) for k, v in tags.items() if v])


def allowed_name(name: str) -> str:
    """``name`` in MLflow's form: ``top@5`` becomes ``top_x40_5``. Different names stay different."""
    allowed = re.sub(r"[^\w/. -]", lambda match: f"_x{ord(match[0]):x}_", name)
    if posixpath.normpath(allowed) != allowed or allowed.startswith(("/", "..")) or allowed == ".":
        allowed = re.sub(r"[/.]", lambda match: f"_x{ord(match[0]):x}_", allowed) or "_"
    if len(allowed) > _LONGEST_NAME:
        allowed = allowed[: _LONGEST_NAME - 9] + "-" + hashlib.sha256(name.encode()).hexdigest()[:8]
    return allowed


def _metrics(logged: Logged) -> Iterator[Metric]:
    """The values of all rows."""
    from mlflow.entities import Metric

    for at, step, metrics in logged.timed_rows():
        for name, value in metrics.items():
            yield Metric(allowed_name(name), value, _milliseconds(at), step)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def _artifacts(uri: str) -> str | None:
    """The place of files: beside a database in a file, otherwise the server's choice."""
    if not uri.startswith("sqlite:///"):
        return None
    from sqlalchemy import make_url

    path = make_url(uri).database
    return (Path(path).absolute().parent / "mlflow-artifacts").as_uri() if path else None


def _database(folder: str) -> str:
    """The address of a database in ``folder``, whose name may have characters with a meaning in addresses."""
    from sqlalchemy import URL

    return URL.create("sqlite", database=f"{folder}/mlflow.db").render_as_string()


def _without_login(uri: str) -> str:
    """A server's address without user and password, which go where MLflow reads them, so that no message of
    the client shows them."""
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
        return uri
    os.environ["MLFLOW_TRACKING_USERNAME"] = unquote(parts.username or "")
    os.environ["MLFLOW_TRACKING_PASSWORD"] = unquote(parts.password or "")
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
