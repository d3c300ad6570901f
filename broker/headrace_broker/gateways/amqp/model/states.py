"""The life of connections, channels and consumers as tables: (state, input) -> state.

A missing row is a protocol error of the peer; nothing but `advance` moves a state.

Source: AMQP 0-9-1 specification, sections 2.2.4 (connection class) and 2.2.5 (channel class), and
the grammar of both classes in section 1.
"""

from __future__ import annotations

from typing import Final

AWAIT_HEADER: Final = 0
AWAIT_START_OK: Final = 1
AUTHENTICATING: Final = 2
AWAIT_TUNE_OK: Final = 3
AWAIT_OPEN: Final = 4
RUNNING: Final = 5
CLOSING: Final = 6  # connection.close sent, waiting for close-ok
LEAVING: Final = 7  # connection.close received, exclusive queues go before close-ok
CLOSED: Final = 8
CONNECTION_STATES: Final = (
    "awaiting the protocol header",
    "awaiting connection.start-ok",
    "authenticating",
    "awaiting connection.tune-ok",
    "awaiting connection.open",
    "running",
    "closing",
    "leaving",
    "closed",
)

HEADER: Final = 0
START_OK: Final = 1
AUTHENTICATED: Final = 2
TUNE_OK: Final = 3
OPEN: Final = 4
CHANNEL_FRAME: Final = 5  # anything on a channel other than 0
HEARTBEAT: Final = 6
CLOSE: Final = 7
CLOSE_OK: Final = 8
FAIL: Final = 9  # this side sends connection.close
DROP: Final = 10  # the socket is gone or is to go
UPDATE_SECRET: Final = 11
CONNECTION_INPUTS: Final = (
    "a protocol header",
    "connection.start-ok",
    "an authentication result",
    "connection.tune-ok",
    "connection.open",
    "a frame on a channel",
    "a heartbeat",
    "connection.close",
    "connection.close-ok",
    "a failure",
    "the end of the socket",
    "connection.update-secret",
)

CONNECTION_TABLE: Final[dict[tuple[int, int], int]] = {
    (AWAIT_HEADER, HEADER): AWAIT_START_OK,
    (AWAIT_START_OK, START_OK): AUTHENTICATING,
    (AUTHENTICATING, AUTHENTICATED): AWAIT_TUNE_OK,
    (AWAIT_TUNE_OK, TUNE_OK): AWAIT_OPEN,
    (AWAIT_OPEN, OPEN): RUNNING,
    (RUNNING, CHANNEL_FRAME): RUNNING,
    (RUNNING, UPDATE_SECRET): RUNNING,
    # Heartbeats may come as soon as the peers talk.
    (AWAIT_START_OK, HEARTBEAT): AWAIT_START_OK,
    (AUTHENTICATING, HEARTBEAT): AUTHENTICATING,
    (AWAIT_TUNE_OK, HEARTBEAT): AWAIT_TUNE_OK,
    (AWAIT_OPEN, HEARTBEAT): AWAIT_OPEN,
    (RUNNING, HEARTBEAT): RUNNING,
    # The client leaves.
    (AWAIT_START_OK, CLOSE): LEAVING,
    (AUTHENTICATING, CLOSE): LEAVING,
    (AWAIT_TUNE_OK, CLOSE): LEAVING,
    (AWAIT_OPEN, CLOSE): LEAVING,
    (RUNNING, CLOSE): LEAVING,
    (CLOSING, CLOSE): LEAVING,
    # This side closes: what was on its way is ignored until close-ok.
    (AWAIT_START_OK, FAIL): CLOSING,
    (AUTHENTICATING, FAIL): CLOSING,
    (AWAIT_TUNE_OK, FAIL): CLOSING,
    (AWAIT_OPEN, FAIL): CLOSING,
    (RUNNING, FAIL): CLOSING,
    (CLOSING, START_OK): CLOSING,
    (CLOSING, AUTHENTICATED): CLOSING,
    (CLOSING, TUNE_OK): CLOSING,
    (CLOSING, OPEN): CLOSING,
    (CLOSING, CHANNEL_FRAME): CLOSING,
    (CLOSING, HEARTBEAT): CLOSING,
    (CLOSING, UPDATE_SECRET): CLOSING,
    (CLOSING, FAIL): CLOSING,
    (CLOSING, CLOSE_OK): CLOSED,
    # Nothing matters any more once the client has said that it leaves.
    (LEAVING, START_OK): LEAVING,
    (LEAVING, AUTHENTICATED): LEAVING,
    (LEAVING, TUNE_OK): LEAVING,
    (LEAVING, OPEN): LEAVING,
    (LEAVING, CHANNEL_FRAME): LEAVING,
    (LEAVING, HEARTBEAT): LEAVING,
    (LEAVING, UPDATE_SECRET): LEAVING,
    (LEAVING, CLOSE): LEAVING,
    (LEAVING, CLOSE_OK): LEAVING,
    (LEAVING, FAIL): LEAVING,
    (AWAIT_HEADER, FAIL): CLOSED,
    (AWAIT_HEADER, DROP): CLOSED,
    (AWAIT_START_OK, DROP): CLOSED,
    (AUTHENTICATING, DROP): CLOSED,
    (AWAIT_TUNE_OK, DROP): CLOSED,
    (AWAIT_OPEN, DROP): CLOSED,
    (RUNNING, DROP): CLOSED,
    (CLOSING, DROP): CLOSED,
    (LEAVING, DROP): CLOSED,
    # What was under way when the socket went.
    (CLOSED, AUTHENTICATED): CLOSED,
    (CLOSED, FAIL): CLOSED,
    (CLOSED, DROP): CLOSED,
}

CHANNEL_CLOSED: Final = 0
CHANNEL_OPEN: Final = 1
CHANNEL_CLOSING: Final = 2  # channel.close sent, waiting for close-ok
CHANNEL_CROSSED: Final = (
    3  # the same, and the client's own close was answered: its close-ok may come
)
CHANNEL_STATES: Final = ("closed", "open", "closing", "closing from both sides")

CHANNEL_INPUT_OPEN: Final = 0
CHANNEL_INPUT_CLOSE: Final = 1
CHANNEL_INPUT_CLOSE_OK: Final = 2
CHANNEL_INPUT_METHOD: Final = 3  # any other method or content
CHANNEL_INPUT_FAIL: Final = 4  # this side sends channel.close
CHANNEL_INPUT_DROP: Final = 5  # the connection ends
CHANNEL_INPUTS: Final = (
    "channel.open",
    "channel.close",
    "channel.close-ok",
    "a method",
    "a failure",
    "the end of the connection",
)

CHANNEL_TABLE: Final[dict[tuple[int, int], int]] = {
    (CHANNEL_CLOSED, CHANNEL_INPUT_OPEN): CHANNEL_OPEN,
    (CHANNEL_CLOSED, CHANNEL_INPUT_FAIL): CHANNEL_CLOSED,
    (CHANNEL_OPEN, CHANNEL_INPUT_METHOD): CHANNEL_OPEN,
    (CHANNEL_OPEN, CHANNEL_INPUT_CLOSE): CHANNEL_CLOSED,
    (CHANNEL_OPEN, CHANNEL_INPUT_FAIL): CHANNEL_CLOSING,
    (CHANNEL_CLOSING, CHANNEL_INPUT_OPEN): CHANNEL_CLOSING,
    (CHANNEL_CLOSING, CHANNEL_INPUT_METHOD): CHANNEL_CLOSING,
    (CHANNEL_CLOSING, CHANNEL_INPUT_FAIL): CHANNEL_CLOSING,
    (CHANNEL_CLOSING, CHANNEL_INPUT_CLOSE): CHANNEL_CROSSED,
    (CHANNEL_CLOSING, CHANNEL_INPUT_CLOSE_OK): CHANNEL_CLOSED,
    (CHANNEL_CROSSED, CHANNEL_INPUT_CLOSE_OK): CHANNEL_CLOSED,
    (CHANNEL_CROSSED, CHANNEL_INPUT_OPEN): CHANNEL_OPEN,
    (CHANNEL_CROSSED, CHANNEL_INPUT_FAIL): CHANNEL_CROSSED,
    (CHANNEL_CLOSED, CHANNEL_INPUT_DROP): CHANNEL_CLOSED,
    (CHANNEL_OPEN, CHANNEL_INPUT_DROP): CHANNEL_CLOSED,
    (CHANNEL_CLOSING, CHANNEL_INPUT_DROP): CHANNEL_CLOSED,
    (CHANNEL_CROSSED, CHANNEL_INPUT_DROP): CHANNEL_CLOSED,
}

CONSUMER_ATTACHING: Final = 0  # consume-ok not sent yet: deliveries are kept back
CONSUMER_ACTIVE: Final = 1
CONSUMER_CANCELLING: Final = 2
CONSUMER_ENDED: Final = 3
CONSUMER_STATES: Final = ("attaching", "active", "cancelling", "ended")

CONSUMER_INPUT_ATTACHED: Final = 0
CONSUMER_INPUT_CANCEL: Final = 1
CONSUMER_INPUT_CANCELLED: Final = 2
CONSUMER_INPUT_LOST: Final = 3  # the queue gave it up, or refused it
CONSUMER_INPUTS: Final = ("attached", "basic.cancel", "cancelled", "lost")

CONSUMER_TABLE: Final[dict[tuple[int, int], int]] = {
    (CONSUMER_ATTACHING, CONSUMER_INPUT_ATTACHED): CONSUMER_ACTIVE,
    (CONSUMER_ATTACHING, CONSUMER_INPUT_LOST): CONSUMER_ENDED,
    (CONSUMER_ACTIVE, CONSUMER_INPUT_CANCEL): CONSUMER_CANCELLING,
    (CONSUMER_ACTIVE, CONSUMER_INPUT_LOST): CONSUMER_ENDED,
    (CONSUMER_CANCELLING, CONSUMER_INPUT_CANCELLED): CONSUMER_ENDED,
    (CONSUMER_CANCELLING, CONSUMER_INPUT_LOST): CONSUMER_ENDED,
    (CONSUMER_ENDED, CONSUMER_INPUT_ATTACHED): CONSUMER_ENDED,
    (CONSUMER_ENDED, CONSUMER_INPUT_CANCELLED): CONSUMER_ENDED,
    (CONSUMER_ENDED, CONSUMER_INPUT_LOST): CONSUMER_ENDED,
}

NO_STATE: Final = -1


def advance(table: dict[tuple[int, int], int], state: int, event: int) -> int:
    """Return the state that follows, or NO_STATE where the table has no row."""
    return table.get((state, event), NO_STATE)
