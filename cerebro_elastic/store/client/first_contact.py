"""The first contact with a server: does it speak TLS, and can anything be reached at all?"""

from __future__ import annotations

import socket
import ssl

from cerebro_elastic.config import StoreSettings, host_port, socket_path
from cerebro_elastic.errors import StoreRefused
from cerebro_elastic.store.client.etcd_errors import NotSent
from cerebro_elastic.system.run_key import RunKey

CONNECT_SECONDS = 2.0


def key_for_tls(address: str, settings: StoreSettings, seconds: float) -> RunKey | None:
    """The run's key, if the server at ``address`` speaks TLS though the settings do not say so: then it is an
    etcd of the run's own (``certificate.py``). Raises ``NotSent`` if no server can be reached."""
    if settings.run_key is None or settings.tls or socket_path(address) is not None:
        return None
    return settings.run_key if _shakes_hands(address, seconds) else None


def explain_silence(address: str, settings: StoreSettings, seconds: float) -> None:
    """Look why a server gave no answer to a connection without TLS. Raises ``StoreRefused`` if it speaks TLS,
    and ``NotSent`` if it has gone."""
    if settings.run_key is not None or settings.tls or socket_path(address) is not None:
        return
    if _shakes_hands(address, seconds):
        raise StoreRefused(
            f"etcd at {address} does not accept a connection without TLS: for the run's own etcd, name by "
            "CEREBRO_RUN_KEY_FILE a copy of the run's key, the file `key` beside its data; for another etcd "
            "set CEREBRO_ETCD_CA, _CERT and _KEY"
        )


def _shakes_hands(address: str, seconds: float) -> bool:
    # The server is not trusted by this: its certificate is checked when the connections are made.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(host_port(address), min(CONNECT_SECONDS, seconds)) as connection:
            return _greets(context, connection)
    except OSError as exc:
        raise NotSent(unreachable(address, exc)) from exc


def _greets(context: ssl.SSLContext, connection: socket.socket) -> bool:
    try:
        context.wrap_socket(connection).close()
    except ssl.SSLError as exc:
        # An alert is TLS, too: the server may want a certificate of ours.
        return "ALERT" in (exc.reason or "")
    except (ConnectionError, TimeoutError):
        return (
            False  # a server without TLS may end a connection that it does not understand, or wait for more
        )
    return True


def unreachable(address: str, problem: BaseException) -> str:
    """In words why no server can be reached at ``address``, and what to check."""
    match problem:
        case socket.gaierror():
            return f"the name in {address} is not known here ({problem.strerror}): check it"
        case ConnectionRefusedError() | FileNotFoundError():
            return f"nothing listens at {address}: check the port, and that etcd runs"
        case TimeoutError():
            return f"no machine answers at {address}: check the address, and that no firewall is in between"
    return f"cannot connect to {address}: {getattr(problem, 'strerror', None) or problem}"
