"""The drivers of etcd: its JSON gateway, and gRPC by the package ``etcd3``."""

from __future__ import annotations

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import MissingExtra
from cerebro_elastic.registry import install_extra, pip_install
from cerebro_elastic.store.client.endpoint import Endpoint
from cerebro_elastic.store.client.gateway import GatewayEndpoint


def open_endpoints(settings: StoreSettings) -> list[Endpoint]:
    """One for each address in ``settings``, by the driver that they name. Connects on first use.

    Raises ``MissingExtra`` if a package that the driver needs cannot be used.
    """
    if settings.driver == "gateway":
        return [GatewayEndpoint(address, settings) for address in settings.endpoints]
    try:
        from cerebro_elastic.store.client.channel import ChannelEndpoint
    except ImportError as exc:
        raise MissingExtra(
            f"CEREBRO_ETCD_DRIVER=grpc needs the package {exc.name!r}, not installed: "
            f"{install_extra('etcd3')}, or leave the variable out for etcd's JSON gateway"
        ) from exc
    except TypeError as exc:
        # protobuf says so where generated code is older than itself.
        raise MissingExtra(
            "CEREBRO_ETCD_DRIVER=grpc: the package 'etcd3' is too old for the protobuf that is installed: "
            f"{pip_install('protobuf<3.21')}, or set PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python"
        ) from exc
    return [ChannelEndpoint(address, settings) for address in settings.endpoints]
