"""Password hashes."""

from __future__ import annotations

import hashlib

import pytest
from msgspec import structs

from headrace_broker.model.definition import HASHED_SCRYPT, HASHED_SHA256, HASHED_SHA512, User
from headrace_broker.model.limits import PASSWORDS_REMEMBERED_MAX
from headrace_broker.runtime.security import password as password_module
from headrace_broker.runtime.security.password import (
    HASH_BYTES,
    SALT_BYTES,
    PasswordChecker,
    hash_password,
    new_user,
)


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_module, "SCRYPT_COST", 2)


def test_hash_is_scrypt_with_the_stated_cost() -> None:
    # From another implementation: openssl kdf -keylen 32 -kdfopt pass:guest
    # -kdfopt salt:0123456789abcdef -kdfopt n:16384 -kdfopt r:8 -kdfopt p:5 SCRYPT
    expected = "5e231a95e7141bc10efeb7cbe1f99598963613414fa364d15ab4ff7aab7ed081"
    assert hash_password("guest", b"0123456789abcdef").hex() == expected


@pytest.mark.usefixtures("cheap")
class TestUsers:
    def test_new_user_has_a_salt_of_its_own(self) -> None:
        first = new_user("a", "secret", ("administrator",), loopback_only=True)
        second = new_user("a", "secret")
        assert len(first.salt) == SALT_BYTES
        assert len(first.password_hash) == HASH_BYTES
        assert first.salt != second.salt
        assert first.password_hash != second.password_hash
        assert first.tags == ("administrator",)
        assert first.loopback_only
        assert not second.loopback_only

    @pytest.mark.parametrize("password", ["", "secret", "p\u00e4ss\u20ac", "\udcff", "x" * 5000])
    def test_right_password_is_right_and_others_are_not(self, password: str) -> None:
        checker = PasswordChecker()
        user = new_user("a", password)
        assert checker.verify(user, password)
        assert not checker.verify(user, password + "x")

    def test_user_without_a_hash_cannot_be_verified(self) -> None:
        assert not PasswordChecker().verify(User("a", b"", b""), "")

    def test_unknown_user_is_wrong(self) -> None:
        checker = PasswordChecker()
        assert not checker.verify(None, "")
        assert not checker.remembered(None, "")


def imported(hashing: str = HASHED_SHA256) -> User:
    """A user whose password is "secret", as RabbitMQ hashes it."""
    hashed = hashlib.new(hashing, b"saltsecret").digest()
    return User("a", b"salt", hashed, ("monitoring",), True, hashing)


@pytest.mark.usefixtures("cheap")
class TestImportedHashes:
    @pytest.mark.parametrize("hashing", [HASHED_SHA256, HASHED_SHA512])
    def test_a_right_password_gives_a_hash_of_ours_for_the_same_user(self, hashing: str) -> None:
        checker = PasswordChecker()
        user = imported(hashing)
        kept = checker.verify(user, "secret")
        assert kept is not None
        assert (len(kept.salt), kept.hashing) == (SALT_BYTES, HASHED_SCRYPT)
        assert kept.password_hash == hash_password("secret", kept.salt)
        assert (kept.name, kept.tags, kept.loopback_only) == ("a", ("monitoring",), True)
        assert checker.remembered(user, "secret")
        assert checker.remembered(kept, "secret")
        assert checker.verify(kept, "secret") is kept

    def test_a_wrong_password_is_wrong_and_costs_a_slow_hash_all_the_same(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slow: list[str] = []

        def noted(password: str, salt: bytes) -> bytes:
            slow.append(password)
            return b""

        monkeypatch.setattr(password_module, "hash_password", noted)
        assert PasswordChecker().verify(imported(), "other") is None
        assert slow == ["other"]

    def test_a_password_that_is_forgotten_is_asked_for_again(self) -> None:
        checker = PasswordChecker()
        user = imported()
        assert checker.verify(user, "secret")
        checker.forget(user, "secret")
        assert not checker.remembered(user, "secret")

    def test_a_hash_of_a_later_version_proves_nothing(self) -> None:
        user = structs.replace(imported(), hashing="md6")
        assert PasswordChecker().verify(user, "secret") is None


@pytest.mark.usefixtures("cheap")
class TestRemembering:
    def test_only_right_passwords_are_remembered(self) -> None:
        checker = PasswordChecker()
        user = new_user("a", "secret")
        assert not checker.remembered(user, "secret")
        checker.verify(user, "wrong")
        checker.verify(user, "secret")
        assert checker.remembered(user, "secret")
        assert not checker.remembered(user, "wrong")

    def test_changed_password_is_not_remembered(self) -> None:
        checker = PasswordChecker()
        user = new_user("a", "secret")
        checker.verify(user, "secret")
        assert not checker.remembered(new_user("a", "secret"), "secret")
        assert not checker.remembered(new_user("a", "other"), "secret")

    def test_memory_is_bounded_and_holds_no_password(self) -> None:
        checker = PasswordChecker()
        for number in range(PASSWORDS_REMEMBERED_MAX + 1):
            assert checker.verify(new_user("a", f"secret{number}"), f"secret{number}")
        assert len(checker._right) == PASSWORDS_REMEMBERED_MAX
        assert b"secret" not in repr(vars(checker)).encode()
