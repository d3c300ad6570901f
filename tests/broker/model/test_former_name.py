"""Limits that a data directory holds under former names."""

from __future__ import annotations

import msgspec
import pytest

from headrace_broker.catalog.command import SetParameter, encode_request
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.request import Request
from headrace_broker.model.flow_parameter import PARAMETERS
from headrace_broker.model.former_name import current_name

FORMER = (
    *("account-octets", "commands", "held-octets", "node-octets", "queue-octets"),
    *("tell-after-ms", "turn-messages", "turn-octets"),
)


def applied(catalog: Catalog, *commands: SetParameter) -> Catalog:
    for command in commands:
        index = catalog.applied_index + 1
        catalog.apply(index, encode_request(Request(1, 1, index), command))
    return catalog


@pytest.mark.parametrize("former", FORMER)
def test_a_former_name_is_read_as_one_of_today(former: str) -> None:
    assert former not in PARAMETERS
    assert current_name(former) in PARAMETERS


@pytest.mark.parametrize("name", PARAMETERS)
def test_todays_names_stand_for_themselves(name: str) -> None:
    assert current_name(name) == name


def test_entries_of_the_log_are_applied_under_todays_names() -> None:
    catalog = applied(Catalog(), SetParameter("held-octets", 4096), SetParameter("commands", 7))
    assert catalog.parameters() == {"connection-buffer-bytes": 4096, "queue-commands": 7}
    applied(catalog, SetParameter("commands"))
    assert catalog.parameters() == {"connection-buffer-bytes": 4096}


def test_snapshots_are_read_with_todays_names() -> None:
    data = applied(Catalog(), SetParameter("node-buffer-bytes", 1 << 30)).snapshot()
    fields = msgspec.msgpack.decode(data)
    assert fields["parameters"] == [["node-buffer-bytes", 1 << 30]]
    fields["parameters"] = [["node-octets", 1 << 30], ["tell-after-ms", 9]]
    found = Catalog.restore(msgspec.msgpack.encode(fields)).parameters()
    assert found == {"node-buffer-bytes": 1 << 30, "blocked-after-ms": 9}
