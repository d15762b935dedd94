"""Do the checkpoints exist from which configs should continue?

``python -m cerebro_elastic.runs.start.heads`` checks, in its own process: reading them takes torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cerebro_elastic.core.model.codec import decode, encode
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.errors import CheckpointError, RunError
from cerebro_elastic.system.subprocess_call import call, serve

_SHOWN = 8


def check_heads(run: str, configs: Iterable[Config]) -> None:
    """Raise ``RunError`` if a checkpoint from which one of the ``configs`` continues is gone or damaged; the
    message names each."""
    begun = [encode(config) for config in configs if config.head is not None]
    gone = call(__name__, "the check of checkpoints", {"configs": begun})["gone"] if begun else []
    if gone:
        more = [f"and {len(gone) - _SHOWN} more"] if len(gone) > _SHOWN else []
        lines = "\n".join(f"  {text}" for text in [*gone[:_SHOWN], *more])
        raise RunError(
            f"configs of run {run!r} cannot go on from checkpoints that are gone:\n{lines}\n"
            "restore them, or name other configs"
        )


def check_here(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request, in this process."""
    return {"gone": list(_gone(decode(config, Config) for config in request["configs"]))}


def _gone(configs: Iterable[Config]) -> Iterator[str]:
    from cerebro_elastic.hop import checkpoint

    for config in configs:
        assert config.head is not None
        try:
            checkpoint.verify(config.head)
        except CheckpointError as error:
            yield f"{config.id}: {error}"


if __name__ == "__main__":
    serve(check_here)
