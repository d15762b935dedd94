"""TensorBoard's files, written without torch: a folder for each config, hyper-parameters included."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import time as now

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams.metadata import SESSION_END_INFO_TAG, create_summary_metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.reporting.logged import ConfigEnd, EndStatus, Logged
from cerebro_elastic.system.files import as_its_folder, make_folder

_STATUS: Mapping[EndStatus, int] = {
    "finished": api_pb2.STATUS_SUCCESS,
    "failed": api_pb2.STATUS_FAILURE,
}
"""For a stopped config nothing is written, and TensorBoard calls its status unknown: it may be resumed, and
TensorBoard keeps the first end that it reads."""


class TensorBoard:
    """Writes TensorBoard's files below ``folder``; ``tensorboard --logdir FOLDER`` shows them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, Path] = {}

    def write(self, logged: Logged) -> None:
        rows = [
            Event(wall_time=time, step=step, summary=Summary(value=_values(metrics)))
            for time, step, metrics in logged.timed_rows()
        ]
        self._append(logged.config, logged.hparams, logged.start, rows)

    def end(self, end: ConfigEnd) -> None:
        if end.status not in _STATUS:
            return
        at = end.time if end.time is not None else now()
        info = SessionEndInfo(status=_STATUS[end.status], end_time_secs=at)
        metadata = create_summary_metadata(HParamsPluginData(session_end_info=info))
        summary = Summary(value=[Summary.Value(tag=SESSION_END_INFO_TAG, metadata=metadata)])
        self._append(end.config, end.hparams, at, [Event(wall_time=at, summary=summary)])

    def close(self) -> None:
        """Nothing to close: no file is open."""

    def _append(self, config: str, hparams: HParams, start: float, events: Sequence[Event]) -> None:
        """Each file begins with the hyper-parameters, since a kill may have left a file without them;
        TensorBoard uses the first ones that it reads. (The library's writer has a thread and an open file for
        each config.)"""
        if config not in self._files:
            make_folder(self._folder / config)
            name = f"events.out.tfevents.{now():.6f}.{socket.gethostname()}.{os.getpid()}"
            self._files[config] = self._folder / config / name
            known = hparams_pb(_flat(hparams), trial_id=config, start_time_secs=start)
            first = Event(wall_time=start, file_version="brain.Event:2")
            events = [first, Event(wall_time=start, summary=known), *events]
        with open(self._files[config], "ab", opener=as_its_folder) as file:
            writer = RecordWriter(file)
            for event in events:
                writer.write(event.SerializeToString())


def _values(metrics: Mapping[str, float]) -> list[Summary.Value]:
    return [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]


def _flat(hparams: HParams) -> dict[str, bool | float | str]:
    """Hyper-parameters in TensorBoard's types: numbers, truth values, text."""
    return {
        name: value if isinstance(value, bool | int | float | str) else str(value)
        for name, value in hparams.items()
    }
