"""Log-ins at the web page, at the node that keeps them and at another one."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest
from tests.broker.runtime.rpc_links import Links

from headrace_broker.catalog.command import Bootstrap, DeleteUser, PutUser, encode_request
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.request import Request
from headrace_broker.catalog.version import SESSIONS
from headrace_broker.model.definition import Node, User
from headrace_broker.model.limits import (
    PAGE_REMOTE_ASKED_MAX,
    PAGE_REMOTE_KNOWN_MAX,
    PAGE_REMOTE_S,
    PAGE_REMOTE_UNHEARD_S,
    PAGE_SESSION_IDLE_S,
    PAGE_SESSION_S_MAX,
    PAGE_SESSIONS_MAX,
    PAGE_USER_SESSIONS_MAX,
)
from headrace_broker.runtime.rpc.protocol import RpcError
from headrace_broker.runtime.security import page_logins as module
from headrace_broker.runtime.security.page_logins import LoginsBusyError, PageLogins


class World:
    """Two nodes with one catalog, and a line between them that may be cut."""

    def __init__(self) -> None:
        self.now = 1000.0
        # Payloads arrive in another turn: all who ask in one wait for the same answer.
        self.links = Links((1, 2), soon=True)
        self.catalog = Catalog()
        nodes = (Node(1, "n1", "h:1"), Node(2, "n2", "h:2"))
        self.do(Bootstrap(nodes, "/", User("guest", b"s", b"h", ("administrator",)), grant=True))
        self.guest = self.user("guest")
        self.nodes = {
            node: PageLogins(node, self.catalog, rpc, lambda: self.now)
            for node, rpc in self.links.rpcs.items()
        }

    @property
    def cut(self) -> bool:
        return bool(self.links.down)

    @cut.setter
    def cut(self, cut: bool) -> None:
        self.links.down = {1, 2} if cut else set()

    @property
    def mute(self) -> bool:
        return bool(self.links.deaf)

    @mute.setter
    def mute(self, mute: bool) -> None:
        self.links.deaf = {1, 2} if mute else set()

    @property
    def asked(self) -> int:
        return [kind for _, _, kind in self.links.sent].count("login")

    def do(self, command: Any) -> None:
        index = self.catalog.applied_index + 1
        self.catalog.apply(index, encode_request(Request(1, 1, index), command))

    def user(self, name: str) -> User:
        found = self.catalog.user(name)
        assert found is not None
        return found


@pytest.fixture
def world() -> World:
    return World()


def find(world: World, node: int, token: str) -> User | None:
    return asyncio.run(world.nodes[node].find(token))


def test_a_log_in_is_found_at_its_node_and_at_others(world):
    token = world.nodes[1].open(world.guest)
    assert token.startswith("1.")
    assert find(world, 1, token) == world.guest
    assert find(world, 2, token) == world.guest
    assert find(world, 2, token) == world.guest
    assert world.asked == 1  # it remembers the word of the other


def test_no_node_keeps_the_token_itself(world):
    token = world.nodes[1].open(world.guest)
    assert token not in repr(vars(world.nodes[1]))


@pytest.mark.parametrize("token", ["", "1.", ".x", "1.wrong", "3.wrong", "x.y", "1" * 99, "-1.x"])
def test_what_is_no_token_finds_nobody(world, token):
    world.nodes[1].open(world.guest)
    assert find(world, 1, token) is None
    assert find(world, 2, token) is None


def test_a_log_in_that_is_not_used_ends(world):
    used, idle = world.nodes[1].open(world.guest), world.nodes[1].open(world.guest)
    world.now += PAGE_SESSION_IDLE_S - 1
    assert find(world, 1, used) is not None
    world.now += 1
    assert find(world, 1, idle) is None
    assert find(world, 2, used) is not None  # another node's question is a use, too


def test_a_log_in_that_is_used_ends_all_the_same(world):
    token = world.nodes[1].open(world.guest)
    end = world.now + PAGE_SESSION_S_MAX
    while world.now + PAGE_SESSION_IDLE_S - 1 < end:
        world.now += PAGE_SESSION_IDLE_S - 1
        assert find(world, 1, token) is not None
    world.now = end
    assert find(world, 1, token) is None


def test_a_log_in_ends_with_the_password_and_with_the_user(world):
    token = world.nodes[1].open(world.guest)
    world.do(PutUser(User("guest", b"t", b"i", ("monitoring",))))
    assert find(world, 1, token) is None
    token = world.nodes[1].open(world.user("guest"))
    assert find(world, 2, token) is not None
    world.do(DeleteUser("guest"))
    assert find(world, 1, token) is None
    assert find(world, 2, token) is None


@pytest.mark.parametrize("anew", [False, True])
def test_a_log_in_ends_with_the_sessions_of_its_user(world, anew):
    """The password and its hash stay."""
    tokens = [world.nodes[1].open(world.guest) for _ in range(2)]
    assert find(world, 2, tokens[0]) is not None
    if anew:
        world.do(DeleteUser("guest"))
    world.do(PutUser(user=world.guest, end_sessions=not anew, version=SESSIONS))
    assert world.user("guest") == world.guest
    for token in tokens:
        for node in (2, 1):
            assert find(world, node, token) is None
    token = world.nodes[1].open(world.guest)
    assert find(world, 1, token) == find(world, 2, token) == world.guest


def test_other_tags_count_at_once(world):
    token = world.nodes[1].open(world.guest)
    world.do(PutUser(User("guest", b"s", b"h", ())))
    found = find(world, 1, token)
    assert found is not None
    assert found.tags == ()


def test_a_log_out_counts_everywhere_at_once(world):
    token = world.nodes[1].open(world.guest)
    assert find(world, 2, token) is not None
    asyncio.run(world.nodes[1].end(token))
    assert find(world, 1, token) is None
    assert find(world, 2, token) is None


def test_a_log_out_that_a_node_does_not_hear_of_counts_there_within_a_second(world):
    token = world.nodes[1].open(world.guest)
    assert find(world, 2, token) is not None
    world.cut = True
    asyncio.run(world.nodes[1].end(token))
    world.cut = False
    assert PAGE_REMOTE_S == 1
    world.now += PAGE_REMOTE_S
    assert find(world, 2, token) is None


def test_whoever_watches_a_log_in_is_told_of_the_log_out_on_each_node(world):
    token, other = world.nodes[1].open(world.guest), world.nodes[1].open(world.guest)
    told = []
    for node in (1, 2):
        for each in (token, other):
            world.nodes[node].watch(each, lambda node=node, each=each: told.append((node, each)))

    def gone() -> None:
        raise AssertionError("it watches no more")

    world.nodes[2].watch(token, gone)
    world.nodes[2].unwatch(token, gone)
    asyncio.run(world.nodes[2].end(token))
    assert sorted(told) == [(1, token), (2, token)]


def test_a_log_out_at_another_node_counts_at_once(world):
    token = world.nodes[1].open(world.guest)
    assert find(world, 2, token) is not None
    asyncio.run(world.nodes[2].end(token))
    assert find(world, 1, token) is None
    assert find(world, 2, token) is None


def test_a_node_that_cannot_be_asked_knows_nobody(world):
    token = world.nodes[1].open(world.guest)
    world.cut = True
    assert find(world, 2, token) is None
    asyncio.run(world.nodes[2].end(token))
    world.cut = False
    assert find(world, 2, token) is None  # whatever the node says that has not heard of it
    assert find(world, 1, token) == world.guest


def test_the_last_word_of_a_silent_node_counts_for_some_seconds(world):
    token, other = world.nodes[1].open(world.guest), world.nodes[1].open(world.guest)
    assert find(world, 2, token) == find(world, 2, other) == world.guest
    world.cut = True
    world.now += PAGE_REMOTE_UNHEARD_S - 1
    assert find(world, 2, token) == world.guest
    world.now += 1
    assert find(world, 2, token) is None
    world.cut = False
    assert find(world, 2, token) == world.guest
    again = Links((1,), soon=True).rpcs[1]
    world.nodes[1] = PageLogins(1, world.catalog, again, lambda: world.now)
    world.links.rpcs[1].receive_ask = again.receive_ask
    again._send = again.answering._send = world.links.rpcs[1]._send
    world.now += PAGE_REMOTE_S
    assert find(world, 2, token) is None  # it has begun anew, and says that there is none
    assert find(world, 2, other) is None


def test_a_log_out_counts_whatever_the_last_word_was(world):
    token = world.nodes[1].open(world.guest)
    assert find(world, 2, token) is not None
    world.cut = True
    asyncio.run(world.nodes[2].end(token))
    world.now += PAGE_REMOTE_S
    assert find(world, 2, token) is None


def test_a_slow_answer_is_not_waited_for_while_the_last_word_counts(world, monkeypatch):
    monkeypatch.setattr(module, "PAGE_REMOTE_S", 0.01)
    token = world.nodes[1].open(world.guest)
    assert find(world, 2, token) is not None
    world.mute = True
    world.now += PAGE_REMOTE_S
    assert find(world, 2, token) == world.guest


def test_all_who_want_to_know_of_a_log_in_share_one_question(world):
    token = world.nodes[1].open(world.guest)
    finding = [world.nodes[2].find(token) for _ in range(PAGE_REMOTE_ASKED_MAX + 4)]
    assert asyncio.run(gathered(finding)) == [world.guest] * len(finding)
    assert world.asked == 1


def test_pages_that_look_at_once_are_all_asked_about(world):
    tokens = [world.nodes[1].open(world.guest) for _ in range(PAGE_USER_SESSIONS_MAX)]
    for token in tokens:
        assert find(world, 2, token) == world.guest
    world.now += PAGE_REMOTE_UNHEARD_S
    finding = [world.nodes[2].find(token) for token in tokens]
    assert asyncio.run(gathered(finding)) == [world.guest] * len(tokens)
    assert world.asked == 2 * len(tokens) < PAGE_REMOTE_KNOWN_MAX * 2


async def gathered(finding: list[Any]) -> list[Any]:
    return await asyncio.gather(*finding)


@pytest.mark.parametrize("token", ["", "x", "1" * 99])
def test_nobody_watches_or_ends_what_is_no_token(world, token):
    def told() -> None:
        raise AssertionError("there is no log-in that could be over")

    world.nodes[1].watch(token, told)
    asyncio.run(world.nodes[1].end(token))
    asyncio.run(world.nodes[2].end(token))
    assert world.asked == 0
    world.nodes[1].unwatch(token, told)


def test_a_user_has_so_many_log_ins_and_the_one_unused_longest_goes(world):
    world.do(PutUser(User("other", b"s", b"o", ("monitoring",))))
    other = world.nodes[1].open(world.user("other"))
    tokens = [world.nodes[1].open(world.guest) for _ in range(PAGE_USER_SESSIONS_MAX)]
    assert find(world, 1, tokens[0]) is not None  # used: the second is the oldest now
    world.nodes[1].open(world.guest)
    assert find(world, 1, tokens[1]) is None
    assert find(world, 1, tokens[0]) is not None
    assert find(world, 1, other) is not None


def test_a_node_keeps_so_many_log_ins(world):
    for number in range(PAGE_SESSIONS_MAX + 1):
        world.nodes[1].open(User(f"u{number}", b"s", b"h"))
    assert len(world.nodes[1]) == PAGE_SESSIONS_MAX


def test_made_up_tokens_ask_another_node_so_many_times_and_keep_nobody_off(world):
    token = world.nodes[1].open(world.guest)
    assert find(world, 2, token) == world.guest
    world.now += PAGE_REMOTE_UNHEARD_S
    world.links.sent.clear()
    world.mute = True

    async def flood() -> None:
        asking = [
            asyncio.create_task(world.nodes[2].find(f"1.made-up-{number}"))
            for number in range(PAGE_REMOTE_ASKED_MAX)
        ]
        for _ in range(3):
            await asyncio.sleep(0)
        assert world.asked == len(asking)
        for number in range(5):
            with pytest.raises(LoginsBusyError):
                await world.nodes[2].find(f"1.made-up-too-{number}")
        world.mute = False
        assert await world.nodes[2].find(token) == world.guest
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    asyncio.run(flood())
    assert world.asked == PAGE_REMOTE_ASKED_MAX + 1


def test_nobody_s_name_is_on_what_is_asked_for_all(world):
    who = ContextVar("who", default="nobody")
    names = []

    def caller():
        names.append(who.get())
        return ""

    async def scenario():
        who.set("a browser")
        return await world.nodes[2].find(token)

    world.links.rpcs[2]._caller = caller
    token = world.nodes[1].open(world.guest)
    assert asyncio.run(scenario()) == world.guest
    assert names == ["nobody"]


def test_a_node_that_refuses_knows_nobody(world, monkeypatch):
    token = world.nodes[1].open(world.guest)

    def refuse(*_):
        raise RpcError("odd", "no")

    world.links.rpcs[1].answering.handlers[module.Login] = refuse
    assert find(world, 2, token) is None
    asyncio.run(world.nodes[2].end(token))
