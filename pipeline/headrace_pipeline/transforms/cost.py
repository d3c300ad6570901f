"""Cost of load for a cluster: the weights by which blame is divided.

    cost = copies * COPY_US + octets * OCTET_US + replica_octets * REPLICA_OCTET_US

in microseconds of broker time. Only the proportions matter, for shares are quotients. A copy is a
message at one queue: a message that fans out to 40 queues is 40, which is how fan-out costs. Where
the broker has charged more (`charged_messages`, `charged_octets`) than was brought, that counts:
dead letters are charged to their cause, who did not publish them again. Raft commands are not
counted by account: each carries up to hundreds of copies, of all accounts together, and their cost
is in COPY_US as it is at full load, which is when blame matters.

Where somebody was stopped at a queue in a window in which nobody brought anything, those who still
owe there are the cause: the same weights on what they owe. So they are, beside those who bring, for
the time in which what waits was why publishers were stopped. Brokers tell of accounts only in
seconds in which they bring or repay something. Where they tell of nobody, nothing has changed at
the queue, and the last window in which they did counts, for CARRIED_S at most.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as fn

COPY_US: Final = 20.0  # us/copy: a compiled node takes in, logs, applies, delivers about 50,000/s
OCTET_US: Final = 0.005  # us/octet: checksum, write and sync at the leader, some 200 MB/s
CARRIED_S: Final = 3_600  # s; a backlog may stop publishers for so long after the last that came
REPLICA_OCTET_US: Final = 0.008  # us/octet: the same at a follower, and the way there


def brought_us(
    copies: Column, octets: Column, replica_octets: Column, messages: Column, charged: Column
) -> Column:
    """Return the cost of the arrivals in a window, 0 for none.

    Args:
        copies: that were brought.
        octets: of these.
        replica_octets: that they make between nodes.
        messages: that were charged.
        charged: octets that were charged.
    """
    nothing = fn.lit(0)
    copied = fn.greatest(fn.coalesce(copies, nothing), fn.coalesce(messages, nothing))
    written = fn.greatest(fn.coalesce(octets, nothing), fn.coalesce(charged, nothing))
    sent = fn.coalesce(replica_octets, nothing)
    return copied * COPY_US + written * OCTET_US + sent * REPLICA_OCTET_US


def owed_us(messages: Column, octets: Column) -> Column:
    """Return the cost of the debts, 0 for none."""
    nothing = fn.lit(0)
    return fn.coalesce(messages, nothing) * COPY_US + fn.coalesce(octets, nothing) * OCTET_US
