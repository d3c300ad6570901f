"""Log-ins."""

from __future__ import annotations

import asyncio
from hashlib import sha256

import pytest

from headrace_broker.model.definition import HASHED_SCRYPT, HASHED_SHA256, User
from headrace_broker.model.limits import (
    LOGIN_CROWDED_SECONDS,
    LOGIN_FAILURES_OF_ADDRESS,
    LOGIN_FAILURES_OF_USER,
    LOGINS_CHECKED_MAX,
)
from headrace_broker.runtime.security import login_turns
from headrace_broker.runtime.security import password as passwords
from headrace_broker.runtime.security.audit import ACTOR, Actor
from headrace_broker.runtime.security.authenticator import Authenticator, is_loopback
from headrace_broker.runtime.security.password import new_user

HERE = "127.0.0.1"
FAR = "192.0.2.7"


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


imported = User("ann", b"salt", sha256(b"saltsecret").digest(), hashing=HASHED_SHA256)


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
        calls.append((work, *arguments))
        return await in_thread(work, *arguments)

    monkeypatch.setattr("headrace_broker.runtime.security.authenticator.asyncio.to_thread", counted)
    return calls


@pytest.mark.parametrize(
    ("name", "password", "host", "right"),
    [
        ("ann", "secret", FAR, True),
        ("ann", "Secret", FAR, False),
        ("ann", "", HERE, False),
        ("bob", "secret", HERE, False),
        ("", "", HERE, False),
        ("guest", "guest", HERE, True),
        ("guest", "guest", FAR, False),
        ("ann", "\udcff", FAR, False),
    ],
)
def test_check(users, name, password, host, right):
    authenticator = Authenticator(users.get)
    verdict = asyncio.run(authenticator.check(name, password, host))
    assert (bool(verdict), verdict.right, verdict.wait_s) == (right, right, 0.0)


def test_right_password_is_hashed_once_and_a_wrong_one_each_time(users, threads):
    authenticator = Authenticator(users.get)

    async def work():
        assert await authenticator.check("ann", "secret", FAR)
        assert await authenticator.check("ann", "secret", FAR)
        assert len(threads) == 1
        assert not await authenticator.check("ann", "wrong", FAR)
        assert not await authenticator.check("ann", "wrong", FAR)
        assert len(threads) == 3

    asyncio.run(work())


def test_an_imported_hash_is_replaced_at_the_first_right_password(users, threads):
    users["ann"] = imported
    authenticator = Authenticator(users.get)
    asked = []

    async def renew(user, kept):
        asked.append((user, kept))
        users["ann"] = kept
        return True

    authenticator.renew = renew

    async def work():
        assert not await authenticator.check("ann", "wrong", FAR)
        assert asked == []
        assert await authenticator.check("ann", "secret", FAR)
        assert await authenticator.check("ann", "secret", FAR)
        assert not await authenticator.check("ann", "wrong", FAR)

    asyncio.run(work())
    [(user, kept)] = asked
    assert user is imported
    assert kept.hashing == HASHED_SCRYPT
    assert len(threads) == 3


def test_a_hash_that_could_not_be_replaced_is_tried_again_and_the_log_in_is_right(users, threads):
    users["ann"] = imported
    authenticator = Authenticator(users.get)

    async def work():
        assert await authenticator.check("ann", "secret", FAR)
        assert await authenticator.check("ann", "secret", FAR)

    asyncio.run(work())
    assert len(threads) == 2


def test_log_ins_are_counted_by_protocol_and_result(users):
    authenticator = Authenticator(users.get, Clock())

    async def work():
        ACTOR.set(Actor("ann", "h:1", "amqp"))
        assert await authenticator.check("ann", "secret", FAR)
        assert authenticator.admits("ann", FAR)
        assert not authenticator.admits("guest", FAR)
        ACTOR.set(Actor("bob", "h:1", "http"))
        for _ in range(LOGIN_FAILURES_OF_USER + 2):
            assert not await authenticator.check("bob", "wrong", HERE)
        ACTOR.set(None)
        assert await authenticator.check("ann", "secret", FAR)

    asyncio.run(work())
    assert {key: count for key, count in authenticator.counts.items() if count} == {
        ("amqp", "succeeded"): 2,
        ("amqp", "refused"): 1,
        ("http", "refused"): LOGIN_FAILURES_OF_USER + 1,
        ("http", "delayed"): 1,
    }


def test_unknown_user_costs_as_much_as_a_wrong_password(users, threads):
    authenticator = Authenticator(users.get)
    assert not asyncio.run(authenticator.check("nobody", "secret", HERE))
    assert not asyncio.run(authenticator.check("guest", "guest", FAR))
    assert len(threads) == 2


def test_known_password_does_not_let_a_loopback_user_in_from_afar(users):
    authenticator = Authenticator(users.get)

    async def work():
        assert await authenticator.check("guest", "guest", HERE)
        assert not await authenticator.check("guest", "guest", FAR)

    asyncio.run(work())


def test_changed_password_is_asked_for_at_once(users):
    authenticator = Authenticator(users.get)

    async def work():
        assert await authenticator.check("ann", "secret", FAR)
        users["ann"] = new_user("ann", "other")
        assert not await authenticator.check("ann", "secret", FAR)
        assert await authenticator.check("ann", "other", FAR)
        del users["ann"]
        assert not await authenticator.check("ann", "other", FAR)

    asyncio.run(work())


def test_after_failures_a_right_password_is_not_looked_at_either_until_the_wait_is_over(
    users, threads
):
    clock = Clock()
    authenticator = Authenticator(users.get, clock)

    async def work():
        for _ in range(LOGIN_FAILURES_OF_USER + 1):
            verdict = await authenticator.check("ann", "guess", FAR)
            assert (bool(verdict), verdict.wait_s) == (False, 0.0)
        looked_at = len(threads)
        verdict = await authenticator.check("ann", "secret", FAR)
        assert (bool(verdict), verdict.wait_s) == (False, 1.0)
        assert len(threads) == looked_at
        assert await authenticator.check("ann", "secret", HERE)  # from elsewhere
        clock.now += 1.0
        assert await authenticator.check("ann", "secret", FAR)

    asyncio.run(work())


def test_guesses_that_come_at_once_do_not_get_more_looks_than_others(users, threads):
    authenticator = Authenticator(users.get, Clock())

    async def work():
        verdicts = await asyncio.gather(
            *(authenticator.check("ann", f"guess {number}", FAR) for number in range(100))
        )
        assert not any(verdicts)
        assert len(threads) <= LOGIN_FAILURES_OF_USER + LOGINS_CHECKED_MAX
        assert [verdict.wait_s > 0 for verdict in verdicts].count(True) >= 100 - len(threads)

    asyncio.run(work())


def test_a_thousand_clients_of_one_user_that_come_at_once_cost_a_look_or_two(users, threads):
    authenticator = Authenticator(users.get)

    async def work():
        checks = (authenticator.check("ann", "secret", FAR) for _ in range(1000))
        assert all(await asyncio.gather(*checks))
        assert len(threads) <= LOGINS_CHECKED_MAX

    asyncio.run(work())


def test_a_right_password_passes_where_it_was_right_before_though_others_fail(users, threads):
    authenticator = Authenticator(users.get, Clock())

    async def work():
        assert await authenticator.check("ann", "secret", FAR)
        for _ in range(LOGIN_FAILURES_OF_USER + 3):
            await authenticator.check("ann", "guess", FAR)
        looked_at = len(threads)
        assert (await authenticator.check("ann", "guess", FAR)).wait_s > 0
        assert await authenticator.check("ann", "secret", FAR)
        assert (await authenticator.check("ann", "guess", FAR)).wait_s > 0  # it clears nothing
        users["ann"] = new_user("ann", "other")
        assert not await authenticator.check("ann", "secret", FAR)
        assert len(threads) == looked_at

    asyncio.run(work())


def test_clients_of_a_locked_user_come_back_all_at_once(users, threads):
    authenticator = Authenticator(users.get, Clock())

    async def work():
        assert await authenticator.check("ann", "secret", FAR)
        for _ in range(LOGIN_FAILURES_OF_USER + 3):
            await authenticator.check("ann", "guess", FAR)
        checks = (authenticator.check("ann", "secret", FAR) for _ in range(1000))
        assert all(await asyncio.gather(*checks))

    asyncio.run(work())


def test_guesses_against_what_is_remembered_are_as_few_as_others(users, threads):
    authenticator = Authenticator(users.get, Clock())

    async def work():
        assert await authenticator.check("ann", "secret", FAR)
        for number in range(1000):
            await authenticator.check("ann", f"guess {number}", FAR)
        verdict = await authenticator.check("ann", "secret", FAR)
        assert (bool(verdict), verdict.wait_s > 0) == (False, True)
        assert len(threads) <= LOGIN_FAILURES_OF_USER + 2
        assert await authenticator.check("ann", "secret", HERE)

    asyncio.run(work())


def test_one_who_tries_many_users_locks_nobody_else_out_there(users, threads):
    authenticator = Authenticator(users.get)

    async def work():
        for number in range(LOGIN_FAILURES_OF_ADDRESS + 1):
            assert not await authenticator.check(f"user {number}", "guess", FAR)
        verdict = await authenticator.check("ann", "secret", FAR)
        assert (bool(verdict), verdict.wait_s) == (True, 0.0)

    asyncio.run(work())


def test_many_guessers_do_not_keep_others_waiting(users, threads):
    """Each guesses anew as soon as it is answered."""
    authenticator = Authenticator(users.get, Clock())
    users["ann"] = new_user("ann", "secret")

    async def work():
        async def guess(number):
            for turn in range(1000):
                await authenticator.check(f"user {number}.{turn}", "guess", f"203.0.113.{number}")

        guessers = [asyncio.create_task(guess(number)) for number in range(40)]
        while len(threads) < 2 * 45:  # noqa: ASYNC110  (every other turn is one by network)
            await asyncio.sleep(0)
        before = len(threads)
        assert await authenticator.check("ann", "secret", FAR)
        # Others may begin while ann's password is hashed, as long as its thread takes.
        [ann] = [at for at, check in enumerate(threads) if check[-1] == "secret"]
        assert ann - before < 2 * LOGINS_CHECKED_MAX
        for each in guessers:
            each.cancel()
        await asyncio.gather(*guessers, return_exceptions=True)

    asyncio.run(work())


def test_who_finds_no_room_is_told_when_to_come_again(users, monkeypatch):
    monkeypatch.setattr(login_turns, "LOGINS_WAITING_NETWORK_MAX", 1)
    authenticator = Authenticator(users.get, Clock())

    async def work():
        verdicts = await asyncio.gather(
            *(authenticator.check(f"user {number}", "guess", FAR) for number in range(20))
        )
        waits = [verdict.wait_s for verdict in verdicts if verdict.wait_s]
        assert waits
        assert set(waits) == {LOGIN_CROWDED_SECONDS}

    asyncio.run(work())


def test_a_client_that_goes_does_not_take_the_answer_of_others_along(users, threads):
    authenticator = Authenticator(users.get)

    async def work():
        first = asyncio.create_task(authenticator.check("ann", "secret", FAR))
        second = asyncio.create_task(authenticator.check("ann", "secret", FAR))
        await asyncio.sleep(0)
        first.cancel()
        assert await second
        assert len(threads) == 1
        assert not authenticator._looks

    asyncio.run(work())


def test_a_failed_log_in_is_in_the_audit_log_without_its_password(users, caplog):
    authenticator = Authenticator(users.get)

    async def work():
        ACTOR.set(Actor("ann", "192.0.2.7:5", "amqp", "n1/1/1"))
        assert not await authenticator.check("ann", "guess", FAR)
        assert not authenticator.admits("bob", FAR)
        assert authenticator.admits("ann", FAR)

    with caplog.at_level("INFO", "headrace.audit"):
        asyncio.run(work())
    prefix = "user=ann peer=192.0.2.7:5 protocol=amqp request=n1/1/1"
    assert [record.getMessage() for record in caplog.records] == [
        f"{prefix} action=login target=ann outcome=refused",
        f"{prefix} action=login target=bob outcome=refused",
    ]


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
