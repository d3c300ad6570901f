"""The administrator that a new cluster begins with."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_broker.config.configuration import ConfigError
from headrace_broker.config.default_user import DefaultUserSection
from headrace_broker.runtime.cluster.default_user import DefaultUser, read_default_user
from headrace_broker.runtime.security.password import hash_password


def section(file: Path) -> DefaultUserSection:
    return DefaultUserSection(name="admin", password_file=str(file))


def test_without_a_file_it_is_guest_from_loopback() -> None:
    assert read_default_user(DefaultUserSection()) == DefaultUser("guest", "guest", True)


def test_the_first_line_of_the_file_is_the_password(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes("sécret\r\nrest".encode())
    found = read_default_user(section(file))
    assert found == DefaultUser("admin", "sécret", loopback_only=False)
    user = found.user()
    assert (user.name, user.tags, user.loopback_only) == ("admin", ("administrator",), False)
    assert user.password_hash == hash_password("sécret", user.salt)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "its first line must be the password"),
        (b"\nsecret", "its first line must be the password"),
        (b"x" * 1025, "its first line must be the password"),
        (b"\xff", "is not UTF-8"),
    ],
)
def test_a_file_without_a_password_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=reason) as caught:
        read_default_user(section(file))
    assert str(caught.value).startswith(f"default_user.password_file: {file}: ")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_default_user(section(tmp_path / "gone"))
