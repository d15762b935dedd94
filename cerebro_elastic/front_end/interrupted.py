"""A call that was interrupted, and what has become of its run."""

from __future__ import annotations

from cerebro_elastic.runs.start.handle import RunHandle


class Interrupted(KeyboardInterrupt):
    """The call was interrupted; the message says what has become of the run."""

    def __init__(self, message: str, handle: RunHandle | None = None) -> None:
        super().__init__(message)
        self.handle = handle
        """The handle of a run that goes on; ``None`` if the run was stopped."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows. Where the run was interrupted tells a user nothing."""
        return [str(self)]
