"""The nodes' progress in counting the rows of shards, before the first unit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.data.shards.counting import fetched_bytes
from cerebro_elastic.errors import CerebroError
from cerebro_elastic.reporting.tables import bytes_text
from cerebro_elastic.runs.results.report import manifest_of

_EVERY_SECONDS = 5.0


def counting_text(spec: Spec) -> str | None:
    """``counting the rows of shards: 12 MB of 80 MB fetched``; ``None`` once they are counted, and if the
    dataset is out of reach."""
    manifest = manifest_of(spec) if spec.recipe["data"].get("shards") else None
    if manifest is None or not manifest.estimated:
        return None
    try:
        done, total = fetched_bytes(spec.data, manifest)
    except CerebroError:
        return None
    return f"counting the rows of shards: {bytes_text(done)} of {bytes_text(total)} fetched"


@contextmanager
def saying(spec: Spec, say: Callable[[str], None]) -> Iterator[None]:
    """Within the block, ``say`` the text whenever it changes."""
    over = threading.Event()

    def watch() -> None:
        before = None
        while (text := counting_text(spec)) is not None and not over.wait(_EVERY_SECONDS):
            if text != before:
                say(text)
            before = text

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
