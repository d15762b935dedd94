"""The key of a run: 32 random bytes, shared by all its processes, and never in its store.

It signs every value that a run writes to etcd. Certificates of an etcd of the run's own are made from it.
"""

from __future__ import annotations

import base64
import hmac
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cerebro_elastic.errors import RunError
from cerebro_elastic.system.ownership import read_own

VARIABLE, FILE_VARIABLE = "CEREBRO_RUN_KEY", "CEREBRO_RUN_KEY_FILE"
_BYTES = 32
SIGNATURE = 43
"""The bytes of a signature."""
_RULE = f"{2 * _BYTES} hexadecimal digits, such as `openssl rand -hex {_BYTES}` prints"


@dataclass(frozen=True, slots=True)
class RunKey:
    """The key of a run."""

    secret: bytes = field(repr=False)
    """The 32 bytes."""
    file: Path | None = field(default=None, compare=False)
    """The file that contains them, if any."""

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self | None:
        """The key that ``CEREBRO_RUN_KEY`` holds, or the file that ``CEREBRO_RUN_KEY_FILE`` names. Raises
        ``RunError`` if it is not a key."""
        if text := env.get(VARIABLE):
            return cls(_secret(text, VARIABLE))
        if file := env.get(FILE_VARIABLE):
            return cls.read(Path(file).expanduser())
        return None

    @classmethod
    def read(cls, file: Path) -> Self:
        """The key in ``file``. Raises ``RunError`` if it contains none, or others can have written it."""
        try:
            text = read_own(file)
        except (OSError, UnicodeDecodeError) as exc:
            raise RunError(
                f"the run's key {file} cannot be read ({exc}): give a file that is this user's alone "
                f"(chmod 600), with {_RULE}"
            ) from exc
        return cls(_secret(text, str(file)), file.absolute())

    @classmethod
    def kept(cls, file: Path) -> Self:
        """The key in ``file``; a new one if the file is missing."""
        return cls.read(file) if file.exists() else cls(secrets.token_bytes(_BYTES)).kept_in(file)

    @classmethod
    def given_or_kept(cls, file: Path) -> Self:
        """The key in this process's environment, else the one in ``file``, which is written if it is new."""
        return cls.from_env(os.environ) or cls.kept(file)

    def kept_in(self, file: Path) -> Self:
        """Write this key to ``file``, which only this user can read. An existing file is read instead."""
        if not file.exists():
            temporary = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
            try:
                with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as new:
                    new.write(self.secret.hex() + "\n")
                with suppress(FileExistsError):  # another process was faster: its key is the one
                    os.link(temporary, file)
            finally:
                temporary.unlink(missing_ok=True)
        return self.read(file)

    def to_env(self) -> dict[str, str]:
        """The variables from which ``from_env`` makes this key again, whatever their earlier values: for the
        environment of a child only."""
        if self.file is not None:
            return {VARIABLE: "", FILE_VARIABLE: str(self.file)}
        return {VARIABLE: self.secret.hex(), FILE_VARIABLE: ""}

    def signature(self, context: str, value: bytes) -> bytes:
        """Sign ``value`` for ``context``: ``SIGNATURE`` letters, digits, '-' and '_'."""
        message = b"%d:%s%s" % (len(context.encode()), context.encode(), value)
        return base64.urlsafe_b64encode(hmac.digest(self.secret, message, "sha256")).rstrip(b"=")


def _secret(text: str, where: str) -> bytes:
    """Decode a key. Errors do not show the text, which may be a key with a typing error."""
    try:
        secret = bytes.fromhex(text.strip())
    except ValueError:
        secret = b""
    if len(secret) != _BYTES:
        raise RunError(f"{where} is no key of a run: it must be {_RULE}")
    return secret
