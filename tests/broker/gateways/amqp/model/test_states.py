"""Every state with every input: these rows are the specification."""

from __future__ import annotations

import pytest

from headrace_broker.gateways.amqp.model import states
from headrace_broker.gateways.amqp.model.states import NO_STATE, advance

# One line per state: where each input leads, "-" for a protocol error.
#             header start  auth   tune   open   chan   beat   close  closeok fail   drop   secret
CONNECTION = {
    "header": "start  -      -      -      -      -      -      -      -      closed closed -",
    "start": " -      auth   -      -      -      -      start  leave  -      closing closed -",
    "auth": "  -      -      tune   -      -      -      auth   leave  -      closing closed -",
    "tune": "  -      -      -      open   -      -      tune   leave  -      closing closed -",
    "open": "  -      -      -      -      run    -      open   leave  -      closing closed -",
    "run": "   -      -      -      -      -      run    run    leave  -      closing closed run",
    "closing": "-     closing closing closing closing closing closing leave closed closing closed"
    " closing",
    "leave": " -      leave  leave  leave  leave  leave  leave  leave  leave  leave  closed leave",
    "closed": "-      -      closed -      -      -      -      -      -      closed closed -",
}
#             open    close   closeok method  fail    drop
CHANNEL = {
    "closed": "open    -       -       -       closed  closed",
    "open": "  -       closed  -       open    closing closed",
    "closing": "closing crossed closed closing closing closed",
    "crossed": "open    -       closed -       crossed closed",
}
#                attached cancel   cancelled lost
CONSUMER = {
    "attaching": "active  -          -     ended",
    "active": "   -       cancelling -     ended",
    "cancelling": "-      -          ended ended",
    "ended": "    ended   -          ended ended",
}


@pytest.mark.parametrize(
    ("table", "expected", "state_names", "input_names"),
    [
        (states.CONNECTION_TABLE, CONNECTION, states.CONNECTION_STATES, states.CONNECTION_INPUTS),
        (states.CHANNEL_TABLE, CHANNEL, states.CHANNEL_STATES, states.CHANNEL_INPUTS),
        (states.CONSUMER_TABLE, CONSUMER, states.CONSUMER_STATES, states.CONSUMER_INPUTS),
    ],
    ids=["connection", "channel", "consumer"],
)
def test_every_state_and_input_leads_where_the_table_says(
    table: dict[tuple[int, int], int],
    expected: dict[str, str],
    state_names: tuple[str, ...],
    input_names: tuple[str, ...],
) -> None:
    names = list(expected)
    assert len(names) == len(state_names)
    walked = 0
    for state, row in enumerate(expected.values()):
        cells = row.split()
        assert len(cells) == len(input_names)
        for event, cell in enumerate(cells):
            following = NO_STATE if cell == "-" else names.index(cell)
            assert advance(table, state, event) == following, (names[state], input_names[event])
            walked += 1
    assert walked == len(state_names) * len(input_names)
    assert len(table) == sum(cell != "-" for row in expected.values() for cell in row.split())
