"""The replicated logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace_broker.runtime.metrics.metric import Sample
from headrace_raftlog.node.queries import RaftFigures


def raft_samples(
    figures: RaftFigures, counters: Mapping[str, int], names: Mapping[int, str]
) -> Iterator[Sample]:
    """Return what a node's replicas, its log and its streams to other nodes do."""
    yield Sample("raft_groups", figures.groups)
    yield Sample("raft_groups_led", figures.led)
    yield Sample("raft_groups_leaderless", figures.leaderless)
    yield Sample("raft_groups_quarantined", figures.quarantined)
    yield Sample("raft_groups_suspended", figures.suspended)
    yield Sample("raft_entries_damaged_total", figures.entries_lost)
    yield Sample("raft_entries_repaired_total", figures.entries_repaired)
    yield Sample("raft_state_comparisons_total", figures.compared)
    yield Sample("raft_replicas_diverged_total", figures.diverged)
    yield Sample("raft_groups_differing", figures.differing)
    yield Sample("raft_entries_committed_total", figures.entries)
    yield Sample("raft_commit_duration_seconds", figures.latency)
    yield Sample("raft_elections_total", figures.elections)
    yield Sample("raft_leader_changes_total", figures.leader_changes)
    for node, lag in figures.lags.items():
        if node in names:
            yield Sample("raft_replication_lag_entries", lag, (names[node],))
    yield Sample("raft_replication_lag_entries_max", figures.lag_max)
    yield Sample("raft_snapshots_taken_total", figures.snapshots)
    yield Sample("raft_snapshots_installed_total", figures.installed)
    yield Sample("raft_messages_sent_total", counters["raft_messages_sent"])
    yield Sample("raft_messages_received_total", counters["raft_messages_received"])
    yield Sample("raft_frames_sent_total", counters["frames_sent"])
    yield Sample("raft_frames_received_total", counters["frames_received"])
    yield Sample("log_size_bytes", figures.log_bytes)
    yield Sample("log_live_bytes", figures.live_bytes)
    yield Sample("log_segments", figures.segments)
    yield Sample("log_backlog_bytes", figures.backlog_bytes)
    yield Sample("log_written_bytes_total", figures.written_bytes)
    yield Sample("log_sync_duration_seconds", figures.syncs)
    yield Sample("log_blocking_reads_total", figures.blocking_reads)
    yield Sample("disk_full", figures.disk_full)
    yield Sample("disk_stalled", figures.disk_stalled)
