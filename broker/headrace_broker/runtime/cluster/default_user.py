"""The administrator that a new cluster begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from headrace_broker.config.configuration import ConfigError
from headrace_broker.config.default_user import GUEST, DefaultUserSection
from headrace_broker.model.definition import User
from headrace_broker.runtime.security.password import new_user

TAGS: Final = ("administrator",)
_PASSWORD_BYTES_MAX: Final = 1024  # of a file that is meant to hold a password


class DefaultUser(NamedTuple):
    """Default user, with the password in the clear: it is hashed when the cluster begins."""

    name: str = GUEST
    password: str = GUEST  # as every AMQP client expects
    loopback_only: bool = True  # may log in from loopback addresses only

    def user(self) -> User:
        """Return the user with a fresh salt; slow, for a thread."""
        return new_user(self.name, self.password, TAGS, loopback_only=self.loopback_only)


def read_default_user(section: DefaultUserSection) -> DefaultUser:
    """Return the user that the configuration names.

    Raises ConfigError: the file with the password cannot be read, or holds none.
    """
    if not section.password_file:
        return DefaultUser()
    key = f"default_user.password_file: {section.password_file}"
    try:
        with Path(section.password_file).open("rb") as file:
            text = file.read(_PASSWORD_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{key}: cannot be read: {error.strerror}") from error
    line = text.partition(b"\n")[0].rstrip(b"\r")
    if not line or len(text) > _PASSWORD_BYTES_MAX:
        raise ConfigError(f"{key}: its first line must be the password, of 1 to 1024 bytes")
    try:
        return DefaultUser(section.name, line.decode(), loopback_only=False)
    except UnicodeDecodeError:
        raise ConfigError(f"{key}: is not UTF-8") from None
