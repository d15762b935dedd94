"""Commands that take something out of a run: its report, a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cerebro_elastic.cli.options import Home


def report(
    run: Annotated[str, typer.Argument(help="Run id, or the run's folder.")],
    output: Annotated[
        Path | None, typer.Option(help="The page's file.", show_default="report.html in the run's folder")
    ] = None,
    home: Home = None,
) -> None:
    """Write what happened in a run as one page for a browser: results, curves, nodes, faults, bytes.

    It needs no network, and can be sent to anybody. A run writes one at its end; a live run has one so far.
    """
    from cerebro_elastic.runs.report import write_report
    from cerebro_elastic.runs.result import open_run

    typer.echo(write_report(open_run(run, home=home), output))
