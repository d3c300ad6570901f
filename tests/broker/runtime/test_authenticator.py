"""Log-ins."""

from __future__ import annotations

import asyncio

import pytest

from headrace_broker.runtime import password as passwords
from headrace_broker.runtime.authenticator import Authenticator, is_loopback
from headrace_broker.runtime.password import new_user


@pytest.fixture(autouse=True)
def cheap_hashes(monkeypatch):
    """Spend no time on hashing."""
    monkeypatch.setattr(passwords, "SCRYPT_COST", 2)


@pytest.fixture
def users():
    """A catalog of two users."""
    return {
        "ann": new_user("ann", "secret"),
        "guest": new_user("guest", "guest", loopback_only=True),
    }


@pytest.fixture
def threads(monkeypatch):
    """Counts checks that are done in a thread."""
    calls = []
    in_thread = asyncio.to_thread

    async def counted(work, *arguments):
        calls.append(work)
        return await in_thread(work, *arguments)

    monkeypatch.setattr("headrace_broker.runtime.authenticator.asyncio.to_thread", counted)
    return calls


@pytest.mark.parametrize(
    ("name", "password", "loopback", "right"),
    [
        ("ann", "secret", False, True),
        ("ann", "Secret", False, False),
        ("ann", "", True, False),
        ("bob", "secret", True, False),
        ("", "", True, False),
        ("guest", "guest", True, True),
        ("guest", "guest", False, False),
        ("ann", "\udcff", False, False),
    ],
)
def test_check(users, name, password, loopback, right):
    authenticator = Authenticator(users.get)
    assert asyncio.run(authenticator.check(name, password, loopback)) is right


def test_right_password_is_hashed_once_and_a_wrong_one_each_time(users, threads):
    authenticator = Authenticator(users.get)

    async def work():
        assert await authenticator.check("ann", "secret", False)
        assert await authenticator.check("ann", "secret", False)
        assert len(threads) == 1
        assert not await authenticator.check("ann", "wrong", False)
        assert not await authenticator.check("ann", "wrong", False)
        assert len(threads) == 3

    asyncio.run(work())


def test_unknown_user_costs_as_much_as_a_wrong_password(users, threads):
    authenticator = Authenticator(users.get)
    assert not asyncio.run(authenticator.check("nobody", "secret", True))
    assert not asyncio.run(authenticator.check("guest", "guest", False))
    assert len(threads) == 2


def test_known_password_does_not_let_a_loopback_user_in_from_afar(users):
    authenticator = Authenticator(users.get)

    async def work():
        assert await authenticator.check("guest", "guest", True)
        assert not await authenticator.check("guest", "guest", False)

    asyncio.run(work())


def test_changed_password_is_asked_for_at_once(users):
    authenticator = Authenticator(users.get)

    async def work():
        assert await authenticator.check("ann", "secret", False)
        users["ann"] = new_user("ann", "other")
        assert not await authenticator.check("ann", "secret", False)
        assert await authenticator.check("ann", "other", False)
        del users["ann"]
        assert not await authenticator.check("ann", "other", False)

    asyncio.run(work())


@pytest.mark.parametrize(
    ("remote", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.0.9", True),
        ("10.0.0.1", False),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:192.0.2.1", False),
        ("192.0.2.1", False),
        ("fe80::1%eth0", False),
        ("somewhere", False),
        ("", False),
        (None, False),
    ],
)
def test_loopback_addresses(remote, expected):
    assert is_loopback(remote) is expected
