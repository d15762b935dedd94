"""Settings of the store check themselves and survive the way through the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import StoreError

ONE = ("127.0.0.1:2379",)


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    path = tmp_path / "file.pem"
    path.touch()
    return path


def test_the_environment_gives_back_what_it_got(pem: Path) -> None:
    for settings in (
        StoreSettings(endpoints=ONE),
        StoreSettings(
            endpoints=("a:1", "[::1]:2"),
            ca=pem,
            cert=pem,
            key=pem,
            user="u",
            password="p, w",
            patience=2,
            driver="grpc",
        ),
    ):
        assert StoreSettings.from_env(settings.to_env()) == settings


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEREBRO_ETCD_ENDPOINTS", "a:1, b:2")
    monkeypatch.setenv("CEREBRO_ETCD_USER", "")
    monkeypatch.setenv("CEREBRO_RUN_KEY", "")
    assert StoreSettings.from_env() == StoreSettings(endpoints=("a:1", "b:2"))


def test_a_mounted_secret_is_read(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("p, w\n")
    env = {"CEREBRO_ETCD_ENDPOINTS": "a:1", "CEREBRO_ETCD_USER": "u"}
    settings = StoreSettings.from_env({**env, "CEREBRO_ETCD_PASSWORD_FILE": str(tmp_path / "password")})
    assert settings.password == "p, w"
    assert StoreSettings.from_env(settings.to_env()) == settings
    with pytest.raises(StoreError, match=r"_PASSWORD_FILE = /none cannot be read: name a file"):
        StoreSettings.from_env({**env, "CEREBRO_ETCD_PASSWORD_FILE": "/none"})


def test_the_kind_of_connection_follows_from_the_settings(pem: Path) -> None:
    plain = StoreSettings(endpoints=("localhost:1", "127.0.0.1:2", "[::1]:3"))
    assert not plain.tls
    assert plain.loopback
    assert plain.encryption == "without TLS"
    assert not StoreSettings(endpoints=("localhost:1", "etcd.example.org:2")).loopback
    assert StoreSettings(endpoints=ONE, ca=pem).encryption == "with TLS and without a certificate"
    assert StoreSettings(endpoints=ONE, cert=pem, key=pem).encryption == "with TLS and a certificate"


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "host",
        "host:",
        ":1",
        "host:0",
        "host:65536",
        "host:x",
        "http://host:1",
        "u@host:1",
        "host:1/x",
        "::1:2",
    ],
)
def test_an_endpoint_is_host_and_port(endpoint: str) -> None:
    with pytest.raises(StoreError, match="is not HOST:PORT"):
        StoreSettings(endpoints=(endpoint,))


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ({"endpoints": ()}, "at least one HOST:PORT"),
        ({"ca": Path("/none.pem")}, "ca = /none.pem cannot be read"),
        ({"driver": "grcp"}, r"'grcp' is not known: did you mean 'grpc'\?.*CEREBRO_ETCD_DRIVER"),
        ({"user": "u"}, "both user and password"),
        ({"patience": 0.0}, "more than 0"),
    ],
)
def test_wrong_settings_say_what_to_do(wrong: dict[str, Any], advice: str) -> None:
    with pytest.raises(StoreError, match=advice):
        StoreSettings(**{"endpoints": ONE, **wrong})


@pytest.mark.parametrize(
    ("env", "advice"),
    [
        ({}, "CEREBRO_ETCD_ENDPOINTS is not set"),
        ({"CEREBRO_ETCD_ENDPOINTS": "a:1,"}, "'' is not HOST:PORT"),
        ({"CEREBRO_ETCD_ENDPOINTS": "a:1", "CEREBRO_ETCD_PATIENCE": "long"}, "PATIENCE is 'long'"),
    ],
)
def test_a_wrong_environment_says_what_to_do(env: dict[str, str], advice: str) -> None:
    with pytest.raises(StoreError, match=advice):
        StoreSettings.from_env(env)
