"""Cost of load to a cluster: the weights by which blame is divided.

    cost = copies * COPY_US + bytes * BYTE_US + replica_octets * REPLICA_BYTE_US

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
BYTE_US: Final = 0.005  # us/byte: checksum, write and sync at the leader, some 200 MB/s
CARRIED_S: Final = 3_600  # s; a backlog may stop publishers for so long after the last that came
REPLICA_BYTE_US: Final = 0.008  # us/byte: the same at a follower, and the way there


def brought_us(
    copies: Column, byte_count: Column, replica_bytes: Column, messages: Column, charged: Column
) -> Column:
    """Return the cost of the arrivals in a window, 0 for none.

    Args:
        copies: that were brought.
        byte_count: of these.
        replica_bytes: that they make between nodes.
        messages: that were charged.
        charged: bytes that were charged.
    """
    nothing = fn.lit(0)
    copied = fn.greatest(fn.coalesce(copies, nothing), fn.coalesce(messages, nothing))
    written = fn.greatest(fn.coalesce(byte_count, nothing), fn.coalesce(charged, nothing))
    sent = fn.coalesce(replica_bytes, nothing)
    return copied * COPY_US + written * BYTE_US + sent * REPLICA_BYTE_US


def owed_us(messages: Column, byte_count: Column) -> Column:
    """Return the cost of the debts, 0 for none."""
    nothing = fn.lit(0)
    return fn.coalesce(messages, nothing) * COPY_US + fn.coalesce(byte_count, nothing) * BYTE_US
