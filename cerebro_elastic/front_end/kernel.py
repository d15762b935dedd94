"""The notebook in which this process runs, if it is a notebook's kernel."""

from __future__ import annotations

import os
import socket
import sys

_ELSEWHERE = ("COLAB_RELEASE_TAG", "JUPYTERHUB_USER", "KAGGLE_KERNEL_RUN_TYPE", "DATABRICKS_RUNTIME_VERSION")
"""Variables of services whose users have their browser on another machine than the kernel."""


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    if "IPython" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    return hasattr(get_ipython(), "kernel")


def browser_is_elsewhere() -> bool:
    """Whether the notebook's browser surely does not reach the kernel's loopback address."""
    return any(name in os.environ for name in _ELSEWHERE)


def way_to(address: str, port: int) -> str:
    """How a browser of another machine opens ``address``, which a server on ``port`` of this one has."""
    if "COLAB_RELEASE_TAG" in os.environ:
        path = address.partition(str(port))[2]
        return f"from google.colab import output\noutput.serve_kernel_port_as_window({port}, path={path!r})"
    return f"ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}\n{address}"
