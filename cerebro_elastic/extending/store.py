"""For drivers of etcd (``cerebro.drivers``): an endpoint is one server, which gets the gateway's requests."""

from cerebro_elastic.errors import StoreRefused as StoreRefused
from cerebro_elastic.store.client.certificate import NAME as NAME
from cerebro_elastic.store.client.certificate import CertificateFiles as CertificateFiles
from cerebro_elastic.store.client.endpoint import Endpoint as Endpoint
from cerebro_elastic.store.client.endpoint import Json as Json
from cerebro_elastic.store.client.etcd_errors import NoAnswer as NoAnswer
from cerebro_elastic.store.client.etcd_errors import NotSent as NotSent
from cerebro_elastic.store.client.etcd_errors import Problem as Problem
from cerebro_elastic.store.client.etcd_errors import explain_silence as explain_silence
from cerebro_elastic.store.client.etcd_errors import from_status as from_status
from cerebro_elastic.store.client.etcd_errors import key_for_tls as key_for_tls
from cerebro_elastic.store.client.etcd_errors import tls_refused as tls_refused
from cerebro_elastic.store.client.gateway import GatewayEndpoint as GatewayEndpoint
