"""``torchrun ... -m cerebro_elastic.worker``: one rank of a node, until its run ends."""

from __future__ import annotations

import os
import sys

from cerebro_elastic.process import die_with_parent


def main() -> int:
    try:
        die_with_parent(int(os.environ["CEREBRO_AGENT"]))
    except KeyError:
        print(
            "cerebro_elastic.worker is started by torchrun with --rdzv-backend=cerebro; "
            "to run a recipe on this machine: cerebro run recipe.yaml",
            file=sys.stderr,
        )
        return 2
    from cerebro_elastic.worker.rank import serve

    return serve(os.environ)


if __name__ == "__main__":
    sys.exit(main())
