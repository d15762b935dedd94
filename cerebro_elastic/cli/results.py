"""Commands that check a run's record, and take a report or a trained model out of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cerebro_elastic.cli.commands import OnLastRun, OnRun
from cerebro_elastic.cli.options import Json, argument, config_ids, echo, echo_json, option
from cerebro_elastic.config import DECIDING_SECONDS
from cerebro_elastic.core.history.keys import visits_of
from cerebro_elastic.reporting.terminal import terminal
from cerebro_elastic.runs.arguments import By
from cerebro_elastic.system.process import begin_as_training
from cerebro_elastic.system.words import counted

if TYPE_CHECKING:
    from cerebro_elastic.runs.results.replay import ReplayedVisit

OneConfig = Annotated[str, option("best", "The config; `best` is the best one.", autocompletion=config_ids)]
_MOST_DIFFERENCES = 20


class Verify(OnLastRun):
    """Check a run's history, and that all made from it agrees with it.

    The command checks the history against the invariants and its chain of digests, then spec, checkpoints,
    data, logged rows, metrics.csv and report against the history. It also makes the run's decisions again and
    compares them.

    Example: cerebro verify digits
    """

    head: str | None = option(
        None, "A head of the record that you noted earlier: the record must still contain it."
    )
    export: Path | None = option(
        None, "The folder of a model that was exported from the run: compare it, too."
    )
    time_limit: float = option(
        DECIDING_SECONDS, "The most seconds to spend on making the run's decisions again.", min=0
    )
    everything: bool = option(False, "Make all decisions again, however long that takes.", "--all")
    as_json: Json

    def __call__(self) -> None:
        from cerebro_elastic.cli.output import head_text
        from cerebro_elastic.cli.shapes import VerifyJson
        from cerebro_elastic.reporting.tables import brief
        from cerebro_elastic.runs.results.verify import verify

        result, seconds = self.opened().result, math.inf if self.everything else self.time_limit
        notes: list[str] = []
        violations = verify(result, head=self.head, export=self.export, seconds=seconds, say=notes.append)
        visits = sum(len(visits_of(event)) for event in result.events)
        if self.as_json:
            echo_json(VerifyJson(visits=visits, violations=violations, notes=notes, head=result.head))
        else:
            for violation in violations:
                echo(f"{violation.invariant}: {brief(violation.story, 500)}", err=True)
            if not violations:
                events = counted(len(result.events), "event")
                echo(f"{events}, {counted(visits, 'visit')}: all invariants hold")
            for note in notes:
                echo(f"note: {brief(note, 500)}")
            if result.head is not None:
                echo(head_text(result.run, result.head))
        if violations:
            raise typer.Exit(1)


class Replay(OnLastRun):
    """Train a config again and compare it with the record, bit for bit.

    It is trained in the order of its visit log. Compared are each visit's state, metrics, samples, batches
    and logged rows, and the values derived from them: best value, best checkpoint, lines of metrics.csv.
    Times and nodes are not compared. If code, versions or hardware here are not those of the run, the command
    names them first.

    Example: cerebro replay digits --config c0003
    """

    config: OneConfig
    as_json: Json

    def __call__(self) -> None:

        begin_as_training()
        from cerebro_elastic.cli.shapes import ReplayJson, VisitJson, filled
        from cerebro_elastic.runs.results.replay import compare_results, replay, what_differs

        result = self.opened().result
        name = result.config(self.config).config
        notes = what_differs(result, name)
        for text in notes:
            echo(f"note: {text}", err=True)
        replays = []
        for replayed in replay(result, name):
            replays.append(replayed)
            if not self.as_json:
                _show(replayed)
        derived = [str(difference) for difference in compare_results(result, name, replays)]
        total, differ = counted(len(replays), "visit"), sum(not replayed.same for replayed in replays)
        same = not (differ or derived)
        if self.as_json:
            visits = [
                filled(
                    VisitJson,
                    replayed,
                    unit=str(replayed.visit.unit),
                    node=replayed.visit.node,
                    differences=list(map(str, replayed.differences)),
                )
                for replayed in replays
            ]
            echo_json(
                filled(
                    ReplayJson, result, config=name, same=same, visits=visits, derived=derived, notes=notes
                )
            )
        elif same:
            echo(f"bit-identical to the record: {total} of {name}")
        else:
            for text in derived:
                echo(f"{name}, {text}")
            reason = ": what the notes above name may be the reason" if notes else ""
            echo(f"{differ} of {total} of {name} not as recorded{reason}", err=True)
        if not same:
            raise typer.Exit(1)


def _show(replayed: ReplayedVisit) -> None:
    mark = "same" if replayed.same else "DIFFERS"
    echo(f"{replayed.visit.unit} on {replayed.visit.node}: {replayed.digest[:12]} {mark}")
    for difference in replayed.differences[:_MOST_DIFFERENCES]:
        echo(f"  {difference}")
    if more := len(replayed.differences[_MOST_DIFFERENCES:]):
        echo(f"  and {more} more")


class Test(OnRun):
    """Measure the best configs of an ended run on its test set.

    The test set is `data.test` of the recipe. No unit, search or stopping rule reads the test set. A run
    measures its best config by itself when it ends. Each measurement is noted in the run's record; a model
    that was measured before is not measured again. The configs stay ranked by validation: a choice among them
    by the test set would use it up.

    Example: cerebro test digits --top 3
    """

    top: int = option(1, "How many of the best configs to measure.")
    by: By = ""
    as_json: Json

    def __call__(self) -> None:
        from cerebro_elastic.cli.shapes import TestJson
        from cerebro_elastic.reporting.tables import measured_by, measured_note, measured_table

        run = self.opened()
        before = run.result.view.state.measured
        found = run.test(self.top, by=self.by)
        if self.as_json:
            echo_json(TestJson(run=run.id, measured=found, before=len(before)))
            return
        terminal().print(measured_table(found))
        echo(measured_note(found))
        if before:
            names = ", ".join(dict.fromkeys(each.config for each in before))
            echo(
                f"The test set was looked at before: {names}, first on {measured_by(before[0])}. What was "
                "chosen since then by somebody who knew these values is measured too well."
            )


class Report(OnLastRun):
    """Write a run's report.

    The report is one page for a browser, which needs no network: results, curves, nodes, faults, bytes. A run
    writes it at its end; this command also writes that of a live run.

    Example: cerebro report digits --output digits.html
    """

    output: str | None = option(
        None, "A file or URL.", show_default="report.html in the run's folder, else RUN.html"
    )

    def __call__(self) -> None:
        echo(self.opened().report(self.output))


class Export(OnRun):
    """Export a trained model, to use without this package.

    The folder gets the config's weights after its best epoch (safetensors), a model card, and for a
    LightningModule a checkpoint for `load_from_checkpoint` and `Trainer.fit(ckpt_path=...)`.

    The checkpoint lacks random generators, accumulated gradients, and plain attributes of the module and its
    callbacks. The command names those that the config has: if training uses them, training on from the
    checkpoint is not bit-identical to the run.

    Example: cerebro export digits model --config c0003
    """

    folder: str = argument(..., "Where the model goes: a new or empty folder, or its URL.")
    config: OneConfig
    merged: bool = option(False, "Of an adapter of PEFT: the base with the adapter in it.")
    as_json: Json

    def __call__(self) -> None:
        from cerebro_elastic.cli.shapes import ExportJson

        run = self.opened()
        exported = run.export(self.folder, self.config, merged=self.merged)
        name, epoch, lacking = exported.row.config, exported.at.epoch, list(exported.not_carried)
        if self.as_json:
            echo_json(
                ExportJson(run=run.id, config=name, epoch=epoch, folder=self.folder, not_carried=lacking)
            )
            return
        echo(f"{name} after epoch {epoch} is in {self.folder}: see README.md there")
        if lacking:
            echo("training on from there continues without:")
        for each in lacking:
            echo(f"  {each}")
