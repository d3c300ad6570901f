"""Names of flow control: causes of work, limits, states of clients."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

# Kinds of activities that enter the broker, each with an account of its own.
CONNECTION: Final = "connection"  # an AMQP client
STREAM: Final = "stream"  # a gRPC publish stream
EXPIRY: Final = "expiry"  # messages whose time is over, in the queues that a node leads
DEAD_LETTERS: Final = "dead-letters"  # dead letters with a forgotten cause
REPLAY: Final = "replay"  # messages published again from an archive
REPUBLISH: Final = "republish"  # messages moved by an administrator
TELEMETRY: Final = "telemetry"  # what a node notes about itself

# Limits that can stop a publisher, in the order of the chain. 0 is for none.
NO_LIMIT: Final = 0
LIMIT_ACCOUNT: Final = 1  # what it has caused and is not done yet
LIMIT_CREDIT: Final = 2  # what its channel was given and has not passed on
LIMIT_COMMANDS: Final = 3  # what a channel has pending at one queue
LIMIT_QUEUE: Final = 4  # what all publishers of this node have pending at one queue
LIMIT_WATERMARK: Final = 5  # what a queue holds; confirms are deferred
LIMIT_MEMORY: Final = 6  # a node's memory
LIMIT_DISK: Final = 7  # a node's disk
LIMIT_RATE: Final = 8  # the publish rate of a user or vhost
LIMIT_INTAKE: Final = 9  # what a node takes in beside its deliveries
LIMIT_HELD: Final = 10  # what a node holds for publishers outside of its log
LIMIT_OUTFLOW: Final = 11  # what leaves a queue that is behind
LIMIT_NAMES: Final = (
    "",
    "account",
    "credit",
    "queue-commands",
    "queue-pending-bytes",
    "watermark",
    "memory-alarm",
    "disk-alarm",
    "publish-rate",
    "intake",
    "node-buffer-bytes",
    "queue-outflow",
)

LEADERLESS: Final = "leaderless"  # among their names: a queue without a leader; nothing measures it


def is_alarm(limit: i64) -> bool:
    """Return whether a limit is memory or disk of a node, which block all publishers at once."""
    return limit in (LIMIT_MEMORY, LIMIT_DISK)


# States of a connection or channel, as RabbitMQ names them.
RUNNING: Final = "running"  # nothing stops its publishes
FLOW: Final = "flow"  # one of its own limits does, or did a moment ago
BLOCKING: Final = "blocking"  # an alarm is on, and it has not published since
BLOCKED: Final = "blocked"  # an alarm keeps its publishes back


@final
class Cause:
    """Origin of a chain of work."""

    def __init__(self, account: str, kind: str, name: str, node: str) -> None:
        self.account = account  # unique in the cluster for ever: a connection's id, or "NODE/KIND"
        self.kind = kind  # CONNECTION or another of the kinds
        self.name = name  # for people, as in listings of connections
        self.node = node  # name of the node that it came in through
        self.user = ""  # "" for the broker's own activities, and before log-in
        self.vhost = ""  # likewise
        self.client_name = ""  # what the client calls itself, "" for nothing
