"""Every bound of the client: one line each, with unit and reason."""

from __future__ import annotations

from typing import Final

ENDPOINTS_MAX: Final = 64  # addresses of a client; more nodes than any cluster has
CONNECT_MS: Final = 5000  # wait for a connection to one node before the next is tried
OPEN_SECONDS: Final = 10.0  # wait for the answer to a stream's opening before another node is tried
LEADER_SECONDS: Final = 2.0  # to find out where a queue is led; then any node will do
CALL_SECONDS: Final = 30.0  # a call with all its repetitions where nothing else is said; a change takes an election
BACKOFF_SECONDS_MIN: Final = 0.1  # the first pause after all nodes were tried in vain
BACKOFF_SECONDS_MAX: Final = 5.0  # the longest; a node that comes back is found about as soon
KEEPALIVE_MS: Final = 20_000  # between probes of a connection on which nothing moves
KEEPALIVE_TIMEOUT_MS: Final = 10_000  # without an answer after which it is gone
RECEIVE_BYTES_MAX: Final = 32 << 20  # of one message from the broker: the largest body with its properties, and a batch beside it
UNCONFIRMED_MESSAGES_MAX: Final = 16_384  # of a publisher where nothing else is said; four of the broker's windows
UNCONFIRMED_BYTES_MAX: Final = 64 << 20  # the same in bytes; four of the largest messages, kept to be sent again
UNSENT_MESSAGES_MAX: Final = 4096  # accepted and not written; as many as the broker takes in one batch
UNSENT_BYTES_MAX: Final = 4 << 20  # the same in bytes, of more than one message
REFUSALS_KEPT_MAX: Final = 1000  # refused messages of a publisher that nobody has asked about, until it is flushed
PROPERTIES_BYTES_MAX: Final = 256 << 10  # of a message's properties as they are encoded; the broker takes 128 KiB in AMQP's form
PREFETCH: Final = 200  # deliveries a consumer is sent ahead where nothing else is said
PREFETCH_MAX: Final = 65_535  # the most; what the broker lets be unsettled
SETTLE_RANGES_MAX: Final = 1024  # in one request; the broker takes 4,096
SETTLES_WAITING_MAX: Final = 65_536  # settled and not written; a consumer whose broker does not take them waits
GET_MESSAGES_MAX: Final = 1000  # of one call of `get`; the broker may give fewer
ADVICE_ITEMS_MAX: Final = 64  # in one call; what the broker takes
PAGE_ROWS: Final = 500  # asked for at once when something is listed
WATCH_BEATS_MISSED: Final = 3  # heartbeats of a watch that may fail before it is begun anew
WATCH_HEARTBEAT_SECONDS: Final = 10.0  # expected from a node that has not said how often they come
WATCHED_MAX: Final = 100_000  # connections, queues and alarms that a watch remembers; more than a cluster tells of
DELIVERIES_AT_ONCE: Final = 100  # handed to a blocked thread at once; each hand-over costs some 50 us
LEASE_CHUNK_BYTES: Final = 1 << 20  # of messages of a lease in one answer where nothing else is said; the broker gives at most 4 MiB
TABLE_DEPTH_MAX: Final = 16  # tables and arrays of headers or arguments within each other; what brokers take
