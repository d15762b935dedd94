"""``python -m support.s3_server ADDRESS``: an S3 server at port 9000 of this host, in memory. A line on its
standard input changes how it answers: ``well``, ``refuse`` (503) or ``hang``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping

from moto.server import ThreadedMotoServer

from support.proxy import Bad, BadProxy, Request

PORT = 9000
BUCKET = "bucket"
_ANSWERS: Mapping[str, Bad | None] = {"well": None, "refuse": Bad.SLOW_DOWN, "hang": Bad.HANG}


def main(address: str) -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    with BadProxy(server.get_host_and_port()[1], (address, PORT)) as proxy:
        print("ready", flush=True)
        for line in sys.stdin:
            answer = _ANSWERS[line.strip()]
            proxy.reset()  # those that hang are let go, and try again

            def plan(_request: Request, answer: Bad | None = answer) -> Bad | None:
                proxy.requests.clear()  # there are many
                return answer

            proxy.plan = plan
    server.stop()


if __name__ == "__main__":
    main(sys.argv[1])
