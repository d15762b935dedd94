"""TensorBoard's files, written without torch: a folder for each config, hyper-parameters included."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import time as now

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams.metadata import SESSION_END_INFO_TAG, create_summary_metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.reporting.logged import ConfigEnd, EndStatus, Logged
from cerebro_elastic.system.files import make_folder

_STATUS: Mapping[EndStatus, int] = {
    "finished": api_pb2.STATUS_SUCCESS,
    "failed": api_pb2.STATUS_FAILURE,
}
"""Of a stopped config nothing is written, and TensorBoard calls its status unknown: it may be resumed, and
TensorBoard keeps the first end that it reads."""


class TensorBoard:
    """Writes TensorBoard's files below ``folder``; ``tensorboard --logdir FOLDER`` shows them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, EventFileWriter] = {}

    def write(self, logged: Logged) -> None:
        writer = self._writer(logged.config, logged.hparams, logged.start)
        for time, step, metrics in logged.timed_rows():
            values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
            writer.add_event(Event(wall_time=time, step=step, summary=Summary(value=values)))
        writer.flush()

    def end(self, end: ConfigEnd) -> None:
        if end.status not in _STATUS:
            return
        at = end.time if end.time is not None else now()
        info = SessionEndInfo(status=_STATUS[end.status], end_time_secs=at)
        metadata = create_summary_metadata(HParamsPluginData(session_end_info=info))
        summary = Summary(value=[Summary.Value(tag=SESSION_END_INFO_TAG, metadata=metadata)])
        writer = self._writer(end.config, end.hparams, at)
        writer.add_event(Event(wall_time=at, summary=summary))
        writer.flush()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _writer(self, config: str, hparams: HParams, start: float) -> EventFileWriter:
        """The writer of a config's files. Each file begins with the hyper-parameters, of which TensorBoard
        reads the first: a kill may have left a file without them."""
        if config not in self._writers:
            folder = self._folder / config
            make_folder(folder)
            writer = self._writers[config] = EventFileWriter(str(folder))
            summary = hparams_pb(_flat(hparams), trial_id=config, start_time_secs=start)
            writer.add_event(Event(wall_time=start, summary=summary))
            writer.flush()
            for file in folder.iterdir():  # which the library makes as the umask says
                file.chmod(file.stat().st_mode & folder.stat().st_mode & 0o777)
        return self._writers[config]


def _flat(hparams: HParams) -> dict[str, bool | float | str]:
    """Hyper-parameters as TensorBoard takes them: numbers, truth values, text."""
    return {
        name: value if isinstance(value, bool | int | float | str) else str(value)
        for name, value in hparams.items()
    }
