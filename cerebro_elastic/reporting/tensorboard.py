"""TensorBoard's files, written without torch: a folder for each config, hyper-parameters included."""

from __future__ import annotations

from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from cerebro_elastic.files import make_folder
from cerebro_elastic.reporting.logged import Logged


class TensorBoard:
    """Writes TensorBoard's files below ``folder``; ``tensorboard --logdir FOLDER`` shows them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, EventFileWriter] = {}

    def write(self, logged: Logged) -> None:
        writer = self._writer(logged)
        for index, row in enumerate(logged.rows, start=1):
            values = [
                Summary.Value(tag=name, simple_value=value) for name, value in row.items() if name != "step"
            ]
            at = logged.start + (logged.end - logged.start) * index / len(logged.rows)
            writer.add_event(Event(wall_time=at, step=int(row["step"]), summary=Summary(value=values)))
        writer.flush()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def _writer(self, logged: Logged) -> EventFileWriter:
        if logged.config not in self._writers:
            folder = self._folder / logged.config
            begun = folder.exists()
            make_folder(folder)
            writer = self._writers[logged.config] = EventFileWriter(str(folder))
            if not begun:
                summary = hparams_pb(_flat(logged), trial_id=logged.config, start_time_secs=logged.start)
                writer.add_event(Event(wall_time=logged.start, summary=summary))
                writer.flush()
            for file in folder.iterdir():  # which the library makes as the umask says
                file.chmod(file.stat().st_mode & folder.stat().st_mode & 0o777)
        return self._writers[logged.config]


def _flat(logged: Logged) -> dict[str, bool | float | str]:
    """Hyper-parameters as TensorBoard takes them: numbers, truth values, text."""
    return {
        name: value if isinstance(value, bool | int | float | str) else str(value)
        for name, value in logged.hparams.items()
    }
