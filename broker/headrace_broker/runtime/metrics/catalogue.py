"""Every metric of /metrics: names, kinds, labels and meanings.

Names follow Prometheus's conventions: base units, `_total` for counters. No label has more values
than a node has kinds of things: nothing here grows with queues, connections or clients. What does
is in `objects`.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from headrace_broker.runtime.metrics.metric import COUNTER, GAUGE, HISTOGRAM, Metric

NODE: Final = (
    Metric("build_info", GAUGE, "1; what runs.", ("version", "compiled", "python_version")),
    Metric("identity_info", GAUGE, "1; who it is.", ("node", "cluster")),
    Metric("uptime_seconds", GAUGE, "Since the node's start."),
    Metric("ready", GAUGE, "1 while clients may be sent here."),
    Metric("maintenance", GAUGE, "1 while the node is being drained."),
    Metric("loop_lag_seconds", GAUGE, "By how much the event loop was late at its last sample."),
    Metric("memory_used_bytes", GAUGE, "Memory that counts for the alarm."),
    Metric("memory_limit_bytes", GAUGE, "Memory from which publishers are blocked."),
    Metric("memory_total_bytes", GAUGE, "Memory that the node may use."),
    Metric("disk_free_bytes", GAUGE, "Free disk of the data directory."),
    Metric("disk_free_limit_bytes", GAUGE, "Free disk below which publishers are blocked."),
    Metric("disk_full", GAUGE, "1 while the log waits for disk."),
    Metric("disk_stalled", GAUGE, "1 while the disk hangs, and the node leads nothing."),
    Metric(
        "certificate_expiry_timestamp_seconds",
        GAUGE,
        "When a certificate ends, in Unix time; none without certificates.",
        ("certificate",),
    ),
    Metric("cluster_nodes", GAUGE, "Nodes of the cluster, as the catalog has them."),
    Metric("peer_up", GAUGE, "1 for another node that is heard.", ("peer",)),
    Metric(
        "clock_skew_seconds",
        GAUGE,
        "A node's wall clock less the median of those heard here; none while not measured.",
        ("node",),
    ),
    Metric(
        "queue_clock_lead_seconds",
        GAUGE,
        "The time by which a node's queues go less that median; likewise.",
        ("node",),
    ),
    Metric("clock_warning", GAUGE, "1 while one of the two is too far away.", ("node",)),
    Metric("catalog_has_leader", GAUGE, "1 while the catalog has a leader: a quorum of nodes."),
    Metric("catalog_leader", GAUGE, "1 on the node that leads the catalog."),
)

CLIENTS: Final = (
    Metric("connections", GAUGE, "Open client connections and gRPC streams.", ("protocol",)),
    Metric("connections_opened_total", COUNTER, "Client connections that were opened."),
    Metric("connections_closed_total", COUNTER, "Client connections that were closed."),
    Metric(
        "connections_refused_total",
        COUNTER,
        "Client connections that were one too many.",
        ("limit",),
    ),
    Metric("channels", GAUGE, "Open channels."),
    Metric("channels_opened_total", COUNTER, "Channels that were opened."),
    Metric("channels_closed_total", COUNTER, "Channels that were closed."),
    Metric("channels_refused_total", COUNTER, "Channels that were one too many for their user."),
    Metric(
        "inputs_deferred_total",
        COUNTER,
        "Times that methods, calls or their steps waited for another turn of the loop.",
    ),
    Metric("calls_waiting", GAUGE, "Calls over HTTP and gRPC that wait for their turn to begin."),
    Metric(
        "calls_refused_total",
        COUNTER,
        "Calls over HTTP and gRPC that came when too many waited.",
    ),
    Metric(
        "loop_held_total",
        COUNTER,
        "Inputs of one client, or steps of a call, that kept the loop for over 50 ms.",
    ),
    Metric("logins_total", COUNTER, "Log-ins by result.", ("protocol", "result")),
    Metric(
        "http_requests_total",
        COUNTER,
        "HTTP requests that were answered.",
        ("handler", "method", "code"),
    ),
    Metric(
        "http_request_duration_seconds", HISTOGRAM, "How long they took; no streams.", ("handler",)
    ),
    Metric("grpc_calls_started_total", COUNTER, "gRPC calls that began.", ("service", "method")),
    Metric("grpc_calls_total", COUNTER, "gRPC calls that ended.", ("service", "method", "code")),
    Metric("grpc_call_duration_seconds", HISTOGRAM, "How long unary calls took.", ("service",)),
)

MESSAGES: Final = (
    Metric("messages_published_total", COUNTER, "Messages that publishers brought, each once."),
    Metric("messages_routed_total", COUNTER, "The same, once for each queue they went to."),
    Metric("messages_confirmed_total", COUNTER, "Applied by their queues, once for each."),
    Metric("messages_unroutable_total", COUNTER, "No queue was bound: returned or dropped."),
    Metric("messages_returned_total", COUNTER, "Sent back to publishers (mandatory, immediate)."),
    Metric("messages_delivered_total", COUNTER, "Handed to consumers, repetitions included."),
    Metric("messages_redelivered_total", COUNTER, "Those that were delivered before."),
    Metric("messages_acknowledged_total", COUNTER, "Settled by consumers."),
    Metric(
        "messages_dead_lettered_total",
        COUNTER,
        "Left queues led here for a dead-letter exchange.",
        ("reason",),
    ),
    Metric(
        "messages_discarded_total",
        COUNTER,
        "Left queues led here that have no dead-letter exchange.",
        ("reason",),
    ),
    Metric(
        "messages_expired_total", COUNTER, "Expired in queues led here, whichever way they went."
    ),
    Metric("dead_letters_sent_total", COUNTER, "Dead letters that arrived in all their queues."),
    Metric("dead_letters_lost_total", COUNTER, "Dead letters that found no queue or no room."),
    Metric("dead_letters_held_bytes", GAUGE, "Dead letters on their way."),
)

QUEUES: Final = (
    Metric("queues", GAUGE, "Queues of the cluster."),
    Metric("queues_led", GAUGE, "Queues that this node leads."),
    Metric("queues_created_total", COUNTER, "Queues that were created, on their first node."),
    Metric("queues_deleted_total", COUNTER, "Queues that were deleted, on their first node."),
    Metric("queues_leaderless", GAUGE, "Replicated queues without a leader, as seen here."),
    Metric(
        "queues_quorum_critical",
        GAUGE,
        "Replicated queues that would lose their quorum with this node.",
    ),
    Metric("exchanges", GAUGE, "Exchanges of the cluster."),
    Metric("consumers", GAUGE, "Consumers of the queues led here."),
    Metric("queue_messages_ready", GAUGE, "Messages that wait in the queues led here."),
    Metric("queue_messages_unacknowledged", GAUGE, "Messages at their consumers and groups."),
    Metric("queue_messages_delayed", GAUGE, "Messages that become available later."),
    Metric("queue_dead_letters", GAUGE, "Dead letters that are kept until they have arrived."),
    Metric("queue_messages_bytes", GAUGE, "Bodies of all of these."),
    Metric("queue_archived_messages", GAUGE, "Settled messages that queues led here keep."),
    Metric("queue_archived_bytes", GAUGE, "Bodies of these."),
    Metric("lease_groups", GAUGE, "Groups that lease messages of the queues led here."),
    Metric("leases", GAUGE, "Leases that they hold."),
    Metric("leased_messages", GAUGE, "Messages in these."),
    Metric("leases_expired_total", COUNTER, "Leases that ended unsettled because of their age."),
)

FLOW: Final = (
    Metric("flow_connections", GAUGE, "Client connections by state.", ("state",)),
    Metric("flow_stopped_connections", GAUGE, "Those that a limit stops now.", ("limit",)),
    Metric("flow_stopped_seconds_total", COUNTER, "How long connections were stopped.", ("limit",)),
    Metric("flow_debt_messages", GAUGE, "What accounts owe.", ("kind",)),
    Metric("flow_debt_bytes", GAUGE, "What accounts owe.", ("kind",)),
    Metric("flow_accounts_in_debt", GAUGE, "Accounts that owe more than they may."),
    Metric("flow_held_bytes", GAUGE, "Publishes that were read and wait."),
    Metric("flow_partial_bytes", GAUGE, "Publishes that have not arrived as a whole."),
    Metric("flow_pending_bytes", GAUGE, "Publishes handed to queues and not applied."),
    Metric("flow_bytes_max", GAUGE, "Bound of the three together."),
    Metric("flow_turn_messages", GAUGE, "Publishes that may pass in one turn of the loop."),
    Metric("flow_turn_bytes", GAUGE, "The same in bytes."),
    Metric("flow_waiting_channels", GAUGE, "Channels that wait for the node's intake."),
    Metric("flow_unread_connections", GAUGE, "Connections whose sockets are not read."),
    Metric("flow_large_publishes", GAUGE, "Large publishes that are being read."),
    Metric("flow_large_publishes_waiting", GAUGE, "Those that wait for their turn."),
    Metric("flow_limit_messages", GAUGE, "Limits in force, as they hold now.", ("limit",)),
    Metric("flow_limit_bytes", GAUGE, "Limits in force, as they hold now.", ("limit",)),
    Metric("flow_limit_share_ratio", GAUGE, "What memory has left of them, 0 to 1."),
    Metric("flow_alarm", GAUGE, "1 while the node's own alarm is on.", ("kind",)),
    Metric("flow_cluster_alarms", GAUGE, "Alarms that are on in the cluster.", ("kind",)),
    Metric("flow_saturated_queues", GAUGE, "Queues led here that withhold confirms."),
    Metric("flow_withheld_confirms", GAUGE, "Messages whose confirms are withheld."),
    Metric(
        "flow_dropped_messages_total", COUNTER, "Held publishes of lost connections without room."
    ),
)

RAFT: Final = (
    Metric("raft_groups", GAUGE, "Replicas on this node, the catalog's included."),
    Metric("raft_groups_led", GAUGE, "Replicas that lead."),
    Metric("raft_groups_leaderless", GAUGE, "Replicas that know of no leader."),
    Metric("raft_groups_quarantined", GAUGE, "Replicas that were damaged and are rebuilt."),
    Metric(
        "raft_groups_suspended",
        GAUGE,
        "Replicas that stand still until damaged entries are put back from other nodes.",
    ),
    Metric(
        "raft_entries_damaged_total",
        COUNTER,
        "Entries whose stored record was found damaged, or not given by the disk, while running.",
    ),
    Metric("raft_entries_mended_total", COUNTER, "Damaged entries put back from other nodes."),
    Metric("raft_entries_committed_total", COUNTER, "Entries committed and applied here."),
    Metric(
        "raft_commit_duration_seconds",
        HISTOGRAM,
        "From a leader's log to application there; one entry of a node is timed at a time.",
    ),
    Metric("raft_elections_total", COUNTER, "Terms that began, as the replicas here saw it."),
    Metric("raft_leader_changes_total", COUNTER, "Leaders that replicas here came to know."),
    Metric(
        "raft_replication_lag_entries",
        GAUGE,
        "Entries that another node lacks of what is led here.",
        ("peer",),
    ),
    Metric("raft_replication_lag_entries_max", GAUGE, "The most that one replica lacks."),
    Metric("raft_snapshots_taken_total", COUNTER, "Snapshots that replicas here took."),
    Metric("raft_snapshots_installed_total", COUNTER, "Snapshots that came from other nodes."),
    Metric("raft_messages_sent_total", COUNTER, "Raft messages to other nodes."),
    Metric("raft_messages_received_total", COUNTER, "Raft messages of other nodes."),
    Metric("raft_frames_sent_total", COUNTER, "Frames to other nodes, beats included."),
    Metric("raft_frames_received_total", COUNTER, "Frames of other nodes."),
    Metric("log_size_bytes", GAUGE, "All files of the log."),
    Metric("log_live_bytes", GAUGE, "What is needed in them."),
    Metric("log_segments", GAUGE, "Files."),
    Metric("log_backlog_bytes", GAUGE, "Appended and not known to be on disk."),
    Metric("log_written_bytes_total", COUNTER, "Written in batches."),
    Metric("log_sync_duration_seconds", HISTOGRAM, "Writing and syncing a batch."),
    Metric(
        "log_blocking_reads_total",
        COUNTER,
        "Reads of the log that the event loop waited for: of replicas that begin, and no others.",
    ),
)

TRACING: Final = (
    Metric("trace_spans_total", COUNTER, "Spans of messages that were made.", ("span",)),
    Metric("trace_spans_dropped_total", COUNTER, "Spans for which there was no room."),
    Metric("trace_spans_pending", GAUGE, "Spans of messages that are open."),
)

METRICS: Final = {
    each.name: each for each in chain(NODE, CLIENTS, MESSAGES, QUEUES, FLOW, RAFT, TRACING)
}
