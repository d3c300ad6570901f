"""Targets of dead letters."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from pamqp import commands, header

from headrace_broker.catalog.command import Bind
from headrace_broker.core.queue.messages.effect import (
    REASON_DELIVERY_LIMIT,
    REASON_MAXLEN,
    REASON_REJECTED,
)
from headrace_broker.model.definition import Binding
from headrace_broker.model.limits import ROUTING_WORK_MAX
from headrace_broker.runtime.dead_letter.dead_letter import (
    CYCLE,
    NO_EXCHANGE,
    NO_ROUTE,
    OFF,
    TOO_COSTLY,
    address,
    is_cycle,
)

NOW = 1_700_000_000


def read(properties: bytes) -> Any:
    content = header.ContentHeader()
    content.unmarshal(struct.pack(">HHQ", 60, 0, 0) + properties)
    return content.properties


def block(**properties: Any) -> bytes:
    return header.ContentHeader(0, 0, commands.Basic.Properties(**properties)).marshal()[12:]


@pytest.fixture
def send(network):
    """Address a letter of the queue "work"; underscores stand for hyphens."""
    source = network.queue("work")

    def address_it(letter, **arguments):
        named = {name.replace("_", "-"): value for name, value in arguments.items()}
        return address(letter, source, named, network.router, NOW)

    return address_it


def names(addressed) -> list[str]:
    return [queue.name for queue in addressed.queues]


def test_letter_goes_where_the_exchange_routes_its_own_key(network, letter, send):
    network.exchange("dlx", "direct")
    for name, key in (("a", "new"), ("b", "other")):
        network.queue(name)
        network.bind("dlx", name, key)
    found = send(letter(), dead_letter_exchange="dlx")
    assert (names(found), found.problem) == (["a"], "")
    assert found.publish.route == b"\x03dlx\x03new"
    assert found.publish.body == b"body"
    assert not found.publish.mandatory


def test_routing_key_of_the_queue_replaces_the_messages(network, letter, send):
    network.exchange("dlx", "direct")
    network.queue("a")
    network.bind("dlx", "a", "dead")
    properties = block(headers={"CC": ["x"], "kept": 1})
    found = send(
        letter(properties=properties), dead_letter_exchange="dlx", dead_letter_routing_key="dead"
    )
    assert names(found) == ["a"]
    assert found.publish.route == b"\x03dlx\x04dead"
    headers = read(found.publish.properties).headers
    assert "CC" not in headers
    assert headers["kept"] == 1
    assert headers["x-death"][0]["routing-keys"] == ["new", "x"]


def test_copied_keys_count_where_the_queue_names_no_key(network, letter, send):
    network.exchange("dlx", "direct")
    for name in ("a", "b"):
        network.queue(name)
        network.bind("dlx", name, name)
    found = send(
        letter(key="a", properties=block(headers={"CC": ["b"]})), dead_letter_exchange="dlx"
    )
    assert names(found) == ["a", "b"]


def test_default_exchange_is_one(network, letter, send):
    network.queue("dead")
    found = send(letter(), dead_letter_exchange="", dead_letter_routing_key="dead")
    assert names(found) == ["dead"]


def test_headers_exchange_sees_the_new_headers(network, letter, send):
    network.exchange("dlx", "headers")
    network.queue("a")
    arguments = {"x-match": "all-with-x", "x-first-death-reason": "expired"}
    network.do(Bind(Binding("/", "dlx", "queue", "a", "", arguments)))
    assert names(send(letter(), dead_letter_exchange="dlx")) == ["a"]


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        (REASON_REJECTED, "rejected"),
        (REASON_MAXLEN, "maxlen"),
        (REASON_DELIVERY_LIMIT, "delivery_limit"),
    ],
)
def test_death_is_recorded(network, letter, send, reason, name):
    network.exchange("dlx")
    network.queue("a")
    network.bind("dlx", "a")
    found = send(letter(reason=reason), dead_letter_exchange="dlx")
    headers = read(found.publish.properties).headers
    [entry] = headers["x-death"]
    assert (entry["reason"], entry["queue"], entry["exchange"]) == (name, "work", "orders")
    assert headers["x-last-death-reason"] == name


def test_missing_exchange_and_missing_route_are_told(network, letter, send):
    assert send(letter()).problem == OFF
    assert send(letter(), dead_letter_exchange="none").problem == NO_EXCHANGE
    network.exchange("dlx")
    assert send(letter(), dead_letter_exchange="dlx").problem == NO_ROUTE


def test_route_that_costs_too_much_is_told(network, letter, send):
    keys = costly(network)
    found = send(letter(properties=block(headers={"CC": keys})), dead_letter_exchange="dlx")
    assert (names(found), found.problem) == ([], TOO_COSTLY)
    assert found.work > ROUTING_WORK_MAX
    found = send(letter(properties=block(headers={"CC": keys[:2]})), dead_letter_exchange="dlx")
    assert (names(found), found.problem) == (["a"], "")


def costly(network) -> list[str]:
    """Bind queues a and b to dlx, b with much; return keys that cost, and all too much."""
    network.exchange("dlx", "topic")
    network.queue("a")
    network.queue("b")
    network.bind("dlx", "a", "new")
    for number in range(900):
        network.bind("dlx", "b", "#.a." * 62 + f"w{number}")
    return [".".join("a" * 126) + f".{number}" for number in range(32)]


def test_routing_key_that_is_no_text_stays_as_it_is(network, letter, send):
    network.exchange("dlx")
    network.queue("a")
    network.bind("dlx", "a")
    odd = letter()
    odd.route = b"\x01x\x02\xff\xfe"
    found = send(odd, dead_letter_exchange="dlx")
    assert found.publish.route == b"\x03dlx\x02\xff\xfe"


def test_letter_that_would_come_back_by_itself_goes_nowhere(network, letter, send, died):
    network.exchange("dlx")
    network.bind("dlx", "work")
    assert send(letter(), dead_letter_exchange="dlx").problem == CYCLE
    network.queue("a")
    network.bind("dlx", "a")
    found = send(letter(properties=died(("a", "maxlen"))), dead_letter_exchange="dlx")
    assert found.problem == CYCLE
    network.queue("b")
    network.bind("dlx", "b")
    found = send(letter(properties=died(("a", "maxlen"))), dead_letter_exchange="dlx")
    assert names(found) == ["b"]


def test_letter_that_somebody_rejected_on_the_way_goes_round(network, letter, send, died):
    network.exchange("dlx")
    network.bind("dlx", "work")
    assert names(send(letter(reason=REASON_REJECTED), dead_letter_exchange="dlx")) == ["work"]
    network.queue("a")
    network.bind("dlx", "a")
    once = letter(properties=died(("a", "rejected")))
    assert names(send(once, dead_letter_exchange="dlx")) == ["a"]


def test_past_that_a_client_wrote_makes_no_cycle(network, letter, send, died):
    network.exchange("dlx")
    network.queue("a")
    network.bind("dlx", "a")
    forged = letter(properties=died(("a", "maxlen")), trusted=False)
    assert names(send(forged, dead_letter_exchange="dlx")) == ["a"]


@pytest.mark.parametrize(
    ("deaths", "cycle"),
    [
        ([], False),
        ([(b"a", b"expired")], True),
        ([(b"b", b"expired")], False),
        ([(b"a", b"rejected")], False),
        ([(b"b", b"expired"), (b"a", b"maxlen")], True),
        ([(b"b", b"rejected"), (b"a", b"maxlen")], False),
        ([(b"b", b"expired"), (b"a", b"rejected")], False),
        ([(b"a", b"delivery_limit"), (b"b", b"rejected")], True),
        ([(b"a", b"expired"), (b"a", b"rejected")], True),
    ],
)
def test_cycle_is_one_without_rejection_since_the_queue_was_passed(deaths, cycle):
    assert is_cycle(b"a", deaths) is cycle
