"""Extends a run that has ended, and starts what trains it further, as ``cerebro extend`` does."""

from __future__ import annotations

import subprocess

from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.control.extension import Wish
from cerebro_elastic.runs.results.result import open_run
from cerebro_elastic.runs.start.extend import extend, planned
from cerebro_elastic.system.process import PYTHON
from cerebro_elastic.system.words import counted
from cerebro_elastic.ui.places import RunPlace


def extend_run(place: RunPlace, wish: Wish) -> str:
    """Extend a run by ``wish``. Returns what was done.

    The run of this machine goes on in a process of its own, which outlives the server. One of a shared etcd
    waits for its hosts. Raises ``RunError`` as ``extend`` does, before anything is changed.
    """
    result = open_run(place.run, home=place.home, store=place.etcd)
    if place.etcd is not None or load_recipe(result.spec.recipe, root=result.spec.root).etcd is not None:
        extend(
            place.run,
            epochs=wish.epochs,
            num=wish.num,
            configs=wish.configs,
            top=wish.top,
            by=wish.by,
            home=place.home,
            store=place.etcd,
        )
        return f"{place.run} is extended. It goes on once its hosts run their command of before again."
    going_on = len(planned(result, wish).extensions[-1].configs)
    log = place.folder.logs / "extend.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("ab") as output:
        driver = subprocess.Popen(
            [*PYTHON, "-m", "cerebro_elastic.cli", "extend", place.run, *_options(place, wish)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C ends the page, not the run
        )
    return (
        f"{place.run} goes on with {counted(going_on, 'config')} in process {driver.pid} of this machine; "
        f"{log} has what it says."
    )


def _options(place: RunPlace, wish: Wish) -> list[str]:
    options = [f"--home={place.home.resolve()}", f"--by={wish.by}"]
    if wish.epochs is not None:
        options.append(f"--epochs={wish.epochs}")
    if wish.num is not None:
        options.append(f"--num={wish.num}")
    if wish.top is not None:
        options.append(f"--top={wish.top}")
    return [*options, *(f"--config={name}" for name in wish.configs)]
