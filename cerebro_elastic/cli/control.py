"""Commands that change a live run: one for each verb, with its arguments."""

from __future__ import annotations

from cerebro_elastic.cli.commands import OnRun
from cerebro_elastic.cli.options import Json, echo, echo_json
from cerebro_elastic.runs.verbs import Add as _Add
from cerebro_elastic.runs.verbs import Drain as _Drain
from cerebro_elastic.runs.verbs import Resume as _Resume
from cerebro_elastic.runs.verbs import Stop as _Stop
from cerebro_elastic.runs.verbs import Verb


class _Change(OnRun, Verb):
    as_json: Json

    def __call__(self) -> None:
        done = self.perform(self.opened())
        if self.as_json:
            echo_json(done)
        else:
            echo(done.said)


class Stop(_Stop, _Change): ...


class Resume(_Resume, _Change): ...


class Add(_Add, _Change): ...


class Drain(_Drain, _Change): ...
