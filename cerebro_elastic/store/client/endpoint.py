"""The interface of a driver to one etcd server: requests and answers.

They have the form of etcd's JSON gateway, which is protobuf's own JSON of etcd's gRPC messages: paths
such as ``kv/range``, base64 for bytes, strings for 64-bit numbers (``wire.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import MissingExtra
from cerebro_elastic.store.client.wire import Json


class Stream(Protocol):
    """The open answer to a streaming request."""

    def messages(self) -> Iterator[Json]:
        """What comes, until etcd ends the stream. Raises what ``Endpoint`` raises; ``NoAnswer`` where the
        stream is lost or was silent for too long."""

    def cut(self) -> None:
        """End the stream from another thread than the one that reads."""

    def close(self) -> None: ...


class Endpoint(Protocol):
    """One server. All methods may be called from any thread; ``seconds`` bounds the wait for an answer,
    ``token`` is that of a login. Raises ``NotSent``, ``NoAnswer``, ``NoSpace``, or ``StoreRefused``."""

    def version(self, seconds: float, token: str | None) -> str:
        """The server's version, such as ``3.5.21``."""

    def call(self, path: str, body: Json, seconds: float, token: str | None) -> dict[str, Any]:
        """The answer to one request, sent once."""

    def stream(self, path: str, body: Json, seconds: float, token: str | None) -> Stream:
        """The answer to a request for a stream, which may be silent for ``seconds``."""

    def close(self) -> None:
        """Release connections and threads."""


def open_endpoints(settings: StoreSettings) -> list[Endpoint]:
    """One for each address in ``settings``, by the driver that they name. Connects on first use.

    Raises ``MissingExtra`` if a package that the driver needs cannot be used.
    """
    if settings.driver == "gateway":
        from cerebro_elastic.store.client.gateway import GatewayEndpoint

        return [GatewayEndpoint(address, settings) for address in settings.endpoints]
    try:
        from cerebro_elastic.store.client.channel import ChannelEndpoint
    except ImportError as exc:
        raise MissingExtra(
            f"CEREBRO_ETCD_DRIVER=grpc needs the package {exc.name!r}, not installed: "
            f"pip install 'cerebro-elastic[etcd3]', or leave the variable out for etcd's JSON gateway"
        ) from exc
    except TypeError as exc:
        # protobuf says so where generated code is older than itself.
        raise MissingExtra(
            "CEREBRO_ETCD_DRIVER=grpc: the package 'etcd3' is too old for the protobuf that is installed: "
            "pip install 'protobuf<3.21', or set PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python"
        ) from exc
    return [ChannelEndpoint(address, settings) for address in settings.endpoints]
