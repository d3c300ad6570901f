"""Every metric of /metrics: names, kinds, labels and meanings.

Names follow Prometheus's conventions: base units, `_total` for counters. No label has more values
than a node has kinds of things: nothing here grows with queues, connections or clients. What does
is in `objects`.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from headrace_broker.runtime.metrics.metric import Metric

NODE: Final = (
    Metric("build_info", "1; version and build.", ("version", "compiled", "python_version")),
    Metric("identity_info", "1; names of node and cluster.", ("node", "cluster")),
    Metric("uptime_seconds", "Time since the node's start."),
    Metric("ready", "1 while the node accepts clients."),
    Metric("maintenance", "1 while the node is being drained."),
    Metric("loop_lag_seconds", "Delay of the event loop at its last sample."),
    Metric("memory_used_bytes", "Memory that counts for the alarm."),
    Metric("memory_limit_bytes", "Memory from which publishers are blocked."),
    Metric("memory_total_bytes", "Memory that the node may use."),
    Metric("disk_free_bytes", "Free disk of the data directory."),
    Metric("disk_free_limit_bytes", "Free disk below which publishers are blocked."),
    Metric("disk_full", "1 while the log waits for disk."),
    Metric("disk_stalled", "1 while the disk hangs, and the node leads nothing."),
    Metric(
        "certificate_expiry_timestamp_seconds",
        "When a certificate ends, in Unix time; none without certificates.",
        ("certificate",),
    ),
    Metric("cluster_nodes", "Nodes of the cluster, as the catalog has them."),
    Metric("peer_up", "1 while another node is connected.", ("peer",)),
    Metric(
        "clock_skew_seconds",
        "A node's wall clock less the median of those heard here; none while not measured.",
        ("node",),
    ),
    Metric(
        "queue_clock_lead_seconds",
        "The time by which a node's queues go less that median; likewise.",
        ("node",),
    ),
    Metric("clock_warning", "1 while one of the two is out of bounds.", ("node",)),
    Metric("catalog_has_leader", "1 while the catalog has a leader: a quorum of nodes."),
    Metric("catalog_leader", "1 on the node that leads the catalog."),
    Metric("rpc_questions_total", "Questions to other nodes, by outcome.", ("outcome",)),
    Metric("rpc_questions_pending", "Questions to other nodes that wait for an answer."),
)

CLIENTS: Final = (
    Metric("connections", "Open client connections and gRPC streams.", ("protocol",)),
    Metric("connections_opened_total", "Client connections that were opened."),
    Metric("connections_closed_total", "Client connections that were closed."),
    Metric(
        "connections_refused_total", "Client connections refused because of a limit.", ("limit",)
    ),
    Metric("channels", "Open channels."),
    Metric("channels_opened_total", "Channels that were opened."),
    Metric("channels_closed_total", "Channels that were closed."),
    Metric("channels_refused_total", "Channels refused because of their user's limit."),
    Metric(
        "inputs_deferred_total",
        "Methods, calls or steps of them that were put off to a later turn of the event loop.",
    ),
    Metric("calls_waiting", "Queued calls over HTTP and gRPC."),
    Metric(
        "calls_refused_total",
        "Calls over HTTP and gRPC refused because the queue of calls was full.",
    ),
    Metric(
        "loop_held_total",
        "Inputs of one client, or steps of a call, that blocked the event loop for over 50 ms.",
    ),
    Metric("logins_total", "Log-ins by result.", ("protocol", "result")),
    Metric(
        "http_requests_total", "HTTP requests that were answered.", ("handler", "method", "code")
    ),
    Metric(
        "http_request_duration_seconds", "Duration of HTTP requests, without streams.", ("handler",)
    ),
    Metric("grpc_calls_started_total", "gRPC calls that began.", ("service", "method")),
    Metric("grpc_calls_total", "gRPC calls that ended.", ("service", "method", "code")),
    Metric("grpc_call_duration_seconds", "Duration of unary calls.", ("service",)),
)

MESSAGES: Final = (
    Metric("messages_published_total", "Messages that were published."),
    Metric(
        "messages_routed_total", "Published messages, once for each queue that they were routed to."
    ),
    Metric("messages_confirmed_total", "Messages confirmed, once for each queue."),
    Metric("messages_unroutable_total", "Messages without a bound queue: returned or dropped."),
    Metric("messages_returned_total", "Messages returned to publishers (mandatory, immediate)."),
    Metric("messages_delivered_total", "Deliveries to consumers, redeliveries included."),
    Metric("messages_redelivered_total", "Redeliveries."),
    Metric("messages_acknowledged_total", "Messages that consumers settled."),
    Metric(
        "messages_dead_lettered_total",
        "Messages of queues led here that were dead-lettered.",
        ("reason",),
    ),
    Metric(
        "messages_discarded_total",
        "Messages of queues led here that were dropped without a dead-letter exchange.",
        ("reason",),
    ),
    Metric(
        "messages_expired_total",
        "Messages that expired in queues led here, dead-lettered or dropped.",
    ),
    Metric("dead_letters_sent_total", "Dead letters confirmed by all their queues."),
    Metric("dead_letters_lost_total", "Dead letters that found no queue or no room."),
    Metric("dead_letters_held_bytes", "Bytes of unconfirmed dead letters."),
)

QUEUES: Final = (
    Metric("queues", "Queues of the cluster."),
    Metric("queues_led", "Queues that this node leads."),
    Metric("queues_created_total", "Queues that were created, on their first node."),
    Metric("queues_deleted_total", "Queues that were deleted, on their first node."),
    Metric("queues_leaderless", "Replicated queues without a leader, as seen here."),
    Metric(
        "queues_quorum_critical", "Replicated queues that would lose their quorum with this node."
    ),
    Metric("exchanges", "Exchanges of the cluster."),
    Metric("consumers", "Consumers of the queues led here."),
    Metric("queue_messages_ready", "Ready messages in the queues led here."),
    Metric(
        "queue_messages_unacknowledged", "Unacknowledged messages of consumers and lease groups."
    ),
    Metric("queue_messages_delayed", "Messages that become available later."),
    Metric("queue_dead_letters", "Kept dead letters: their targets have not confirmed them."),
    Metric("queue_messages_bytes", "Bytes of the bodies of all of these."),
    Metric("queue_archived_messages", "Messages in the archives of queues led here."),
    Metric("queue_archived_bytes", "Bytes of their bodies."),
    Metric("lease_groups", "Groups that lease messages of the queues led here."),
    Metric("leases", "Leases of these groups."),
    Metric("leased_messages", "Messages of these leases."),
    Metric("leases_expired_total", "Leases that expired."),
)

FLOW: Final = (
    Metric("flow_connections", "Client connections by state.", ("state",)),
    Metric("flow_stopped_connections", "Connections that a limit stops now.", ("limit",)),
    Metric("flow_stopped_seconds_total", "Time for which limits stopped connections.", ("limit",)),
    Metric("flow_debt_messages", "Debt of all accounts.", ("kind",)),
    Metric("flow_debt_bytes", "Debt of all accounts.", ("kind",)),
    Metric("flow_accounts_in_debt", "Accounts whose debt is above their limit."),
    Metric("flow_buffered_bytes", "Bytes in publish buffers."),
    Metric("flow_partial_bytes", "Bytes of publishes that have not arrived completely."),
    Metric("flow_pending_bytes", "Pending bytes: publishes that queues have not applied."),
    Metric("flow_bytes_max", "Limit of the sum of the three."),
    Metric(
        "flow_intake_messages", "Publishes that the node accepts in one turn of its event loop."
    ),
    Metric("flow_intake_bytes", "The same, in bytes."),
    Metric("flow_waiting_channels", "Channels that wait for the node's intake."),
    Metric("flow_unread_connections", "Connections whose sockets are not read."),
    Metric("flow_large_publishes", "Large publishes that are being read."),
    Metric("flow_large_publishes_waiting", "Large publishes that wait to be read."),
    Metric(
        "flow_limit_messages", "Limits in force, after memory stage 1 has reduced them.", ("limit",)
    ),
    Metric(
        "flow_limit_bytes", "Limits in force, after memory stage 1 has reduced them.", ("limit",)
    ),
    Metric("flow_limit_share_ratio", "Share of the limits that memory stage 1 leaves, 0 to 1."),
    Metric("flow_alarm", "1 while the node's own alarm is on.", ("kind",)),
    Metric("flow_cluster_alarms", "Alarms that are on in the cluster.", ("kind",)),
    Metric("flow_saturated_queues", "Queues led here that defer confirms."),
    Metric("flow_behind_queues", "Queues led here whose confirms wait until messages leave."),
    Metric("flow_deferred_confirms", "Messages whose confirms are deferred."),
    Metric(
        "flow_dropped_messages_total",
        "Buffered publishes dropped because their connection was lost.",
    ),
)

RAFT: Final = (
    Metric("raft_groups", "Replicas on this node, the catalog's included."),
    Metric("raft_groups_led", "Replicas that lead."),
    Metric("raft_groups_leaderless", "Replicas that know of no leader."),
    Metric("raft_groups_quarantined", "Damaged replicas that are being rebuilt."),
    Metric("raft_groups_suspended", "Replicas suspended until damaged entries are repaired."),
    Metric(
        "raft_entries_damaged_total",
        "Entries whose stored record was found damaged, or not given by the disk, while running.",
    ),
    Metric("raft_entries_repaired_total", "Damaged entries repaired from other nodes."),
    Metric(
        "raft_state_comparisons_total", "Comparisons of the states of replicas that are led here."
    ),
    Metric(
        "raft_replicas_diverged_total",
        "Replicas here whose state differed from a majority's, and that were rebuilt.",
    ),
    Metric(
        "raft_groups_differing", "Groups led here whose states differ, and none has a majority."
    ),
    Metric("raft_entries_committed_total", "Entries committed and applied here."),
    Metric(
        "raft_commit_duration_seconds",
        "From a leader's log to application there; one entry of a node is timed at a time.",
    ),
    Metric("raft_elections_total", "Terms that began at the replicas here."),
    Metric("raft_leader_changes_total", "Changes of leader at the replicas here."),
    Metric(
        "raft_replication_lag_entries",
        "Entries that another node lacks of what is led here.",
        ("peer",),
    ),
    Metric("raft_replication_lag_entries_max", "Largest replication lag of one replica."),
    Metric("raft_snapshots_taken_total", "Snapshots that replicas here took."),
    Metric("raft_snapshots_installed_total", "Snapshots received from other nodes."),
    Metric("raft_messages_sent_total", "Raft messages to other nodes."),
    Metric("raft_messages_received_total", "Raft messages of other nodes."),
    Metric("raft_frames_sent_total", "Frames to other nodes, heartbeats included."),
    Metric("raft_frames_received_total", "Frames of other nodes."),
    Metric("log_size_bytes", "Size of all files of the shared log."),
    Metric("log_live_bytes", "Live bytes in these files."),
    Metric("log_segments", "Segment files of the shared log."),
    Metric("log_backlog_bytes", "Bytes appended and not synced yet."),
    Metric("log_written_bytes_total", "Bytes written to the shared log."),
    Metric("log_sync_duration_seconds", "Duration of writing and syncing a batch."),
    Metric(
        "log_blocking_reads_total",
        "Reads of the log that the event loop waited for: of replicas that begin, and no others.",
    ),
)

TRACING: Final = (
    Metric("trace_spans_total", "Spans of messages that were made.", ("span",)),
    Metric("trace_spans_dropped_total", "Spans dropped because of a full buffer."),
    Metric("trace_spans_pending", "Spans of messages that are open."),
)

METRICS: Final = {
    each.name: each for each in chain(NODE, CLIENTS, MESSAGES, QUEUES, FLOW, RAFT, TRACING)
}
