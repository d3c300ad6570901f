"""Every bound of the pipeline: one line each, with unit and reason."""

from __future__ import annotations

from typing import Final

SECRET_BYTES_MAX: Final = 4096  # of a file with a password; more is a wrong file
CLIENTS_MAX: Final = 16  # connections of a process: one for each cluster and user that a job works with, mostly one
GROUP_NAME_BYTES_MAX: Final = 255  # of a group's name; what brokers take
LEASE_MESSAGES_MAX: Final = 65_536  # that one lease has; what brokers give
LEASE_BYTES_MAX: Final = 256 << 20  # of the bodies of one lease; what brokers give
LEASES_MAX: Final = 64  # of a batch; what brokers let a group hold
LEASE_FETCH_BYTES: Final = 4 << 20  # of messages in one answer, which is one record batch; what brokers give
LEASE_TTL_MS: Final = 600_000  # after which messages of a job that is gone go back, where nothing else is said; one that comes back takes them over at once
LEASE_TTL_MS_MIN: Final = 1000  # the shortest; what brokers take
LEASE_TTL_MS_MAX: Final = 86_400_000  # the longest, a day; likewise
LEASE_POLL_SECONDS: Final = 0.2  # before an empty queue is asked again; each question is a command in its log, and Spark has one every 10 ms
QUEUE_TRIGGER_ROWS: Final = 500_000  # of a batch where nothing else is said: large files, and half of what a queue may have leased, so that two groups go side by side
QUEUE_TRIGGER_ROWS_MAX: Final = 1_048_576  # the most; what brokers lease of a queue
QUEUE_TRIGGER_BYTES: Final = 1 << 30  # of bodies in a batch where nothing else is said; a few minutes of one task
QUEUE_TRIGGER_BYTES_MAX: Final = 16 << 30  # the most: 64 leases
PARTITIONS_MAX: Final = 4096  # that one may want of a batch; more tasks take longer to start than to run
LOG_OFFSET_SHARDS_MAX: Final = 100_000  # in an offset of the source of logs, which stands in the checkpoint once a batch: some 3 MB
PARTITION_ROWS: Final = 50_000  # of logs that a task reads where nothing else is said; about a second
BATCH_ROWS: Final = 10_000  # in one Arrow batch that Spark is handed; brokers' blocks of telemetry hold a second each
BATCH_BYTES: Final = 8 << 20  # the same in octets; Spark's workers have some batches in memory
NODE_WAIT_SECONDS: Final = 300.0  # for which a task waits for a node that has its rows; longer than one takes to start
LOOK_SECONDS: Final = 0.5  # between looks at what brokers have while there is nothing new; rows of telemetry come once a second
CLOCK_AHEAD_MS: Final = 2_000  # by which a node's clock may be ahead of the driver's before its rows' times are lowered
ROW_OCTETS: Final = 128  # added to the body of each archived row when octets are counted: its other columns, about
LOCAL_PARTITIONS: Final = 8  # of a shuffle in one process: Spark's 200 are 200 small tasks there
JVM_STOP_SECONDS_MAX: Final = 60  # that Spark's JVM gets to end once its session is stopped; mostly it takes one
STOP_LOOK_SECONDS: Final = 1  # that a job waits for the end of one query before it looks at the others, and whether it is to stop
