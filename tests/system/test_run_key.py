"""The key of a run: where it comes from, who can read it, and that no message shows it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import RunError
from cerebro_elastic.system.run_key import RunKey
from support.owners import ONLY_ROOT, OTHER

TEXT = "0123456789abcdef" * 4
SETTINGS = StoreSettings(endpoints=("a:1",))


def test_it_is_made_once_for_this_user_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with ThreadPoolExecutor(8) as pool:
            keys = list(pool.map(lambda _: RunKey.kept(tmp_path / "key"), range(8)))
    finally:
        os.umask(before)
    assert len({key.secret for key in keys}) == 1
    assert RunKey.read(tmp_path / "key") == keys[0]
    assert [file.name for file in tmp_path.iterdir()] == ["key"]
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert RunKey.kept(tmp_path / "other") != keys[0]
    assert RunKey(b"x" * 32).kept_in(tmp_path / "key") == keys[0], "the one that is there stays"


@pytest.mark.parametrize("by_file", [False, True])
def test_children_get_it_whatever_their_environment_held(by_file: bool, tmp_path: Path) -> None:
    env = {"CEREBRO_RUN_KEY": TEXT}
    if by_file:
        (tmp_path / "key").write_text(f" {TEXT}\n")
        env = {"CEREBRO_RUN_KEY_FILE": str(tmp_path / "key")}
    key = RunKey.from_env(env)
    assert key is not None
    settings = replace(SETTINGS, run_key=key)
    other = {"CEREBRO_RUN_KEY": "ff" * 32, "CEREBRO_RUN_KEY_FILE": "/none"}
    assert StoreSettings.from_env({**other, **settings.to_env()}) == settings
    assert (TEXT in str(settings.to_env())) != by_file, "by file, if it came by file"
    assert TEXT not in repr(settings) + repr(key)
    assert key.secret.hex() not in repr(settings) + repr(key)


@pytest.mark.parametrize("wrong", ["s3cret", TEXT[:-2], TEXT + "00", "s3cret" + TEXT[6:], " \n"])
def test_an_invalid_key_is_refused_and_not_shown(wrong: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(wrong)
    for env in ({"CEREBRO_RUN_KEY": wrong}, {"CEREBRO_RUN_KEY_FILE": str(tmp_path / "key")}):
        with pytest.raises(RunError, match=r"is no key of a run: it must be 64 hex.*openssl rand") as caught:
            RunKey.from_env(env)
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("mode", "owner", "why"),
    [
        (0o666, None, r"can be written by others \(mode 666\)"),
        (0o620, None, r"can be written by others \(mode 620\)"),
        pytest.param(0o600, OTHER, "belongs to .*, and this process runs as", marks=ONLY_ROOT),
    ],
)
def test_a_key_that_others_can_have_written_is_refused(
    mode: int, owner: int | None, why: str, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text(TEXT)
    file.chmod(mode)
    if owner is not None:
        os.chown(file, owner, owner)
    for link in (file, tmp_path / "link"):
        if link != file:
            link.symlink_to(file)
        with pytest.raises(RunError, match=f"{link} cannot be read .*{why}.*chmod 600"):
            RunKey.kept(link)


def test_a_signature_is_of_one_key_one_context_and_one_value() -> None:
    key = RunKey(bytes(32))
    derived = {
        key.signature(*of) for of in (("a", b"bc"), ("ab", b"c"), ("", b"abc"), ("a", b"bC"), ("1:a", b""))
    }
    assert len({*derived, RunKey(b"x" * 32).signature("a", b"bc")}) == 6


@pytest.mark.parametrize(
    ("settings", "trusted"),
    [
        ({}, False),
        ({"run_key": RunKey(bytes(32))}, False),
        ({"ca": True}, False),
        ({"user": "u", "password": "p", "endpoints": ("127.0.0.1:1",)}, False),
        ({"user": "u", "password": "p", "ca": True}, False),
        ({"cert": True, "key": True}, True),
    ],
)
def test_which_etcd_is_trusted(settings: dict[str, object], trusted: bool, tmp_path: Path) -> None:
    (tmp_path / "pem").write_text("")
    given = {name: tmp_path / "pem" if value is True else value for name, value in settings.items()}
    assert replace(SETTINGS, **given).trusted is trusted  # type: ignore[arg-type]
