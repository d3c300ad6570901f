"""The dashboard about everything: messages, clients, replicated logs, nodes."""

from __future__ import annotations

from typing import Final

from panel import NODE, Panel, Row, quantile, rate, stat, total

OVERVIEW: Final[tuple[Row, ...]] = (
    (
        "Cluster",
        (
            stat("Nodes that serve", "none", "sum(headrace_ready{PICK})"),
            stat("Connections", "none", "sum(headrace_connections{PICK})"),
            stat("Queues", "none", "max(headrace_queues{PICK})"),
            stat("Ready messages", "short", "sum(headrace_queue_messages_ready{PICK})"),
            stat("Alarms", "none", "sum(headrace_flow_alarm{PICK})"),
            stat("Queues without leader", "none", "max(headrace_queues_leaderless{PICK})"),
        ),
    ),
    (
        "Messages",
        (
            Panel(
                "In and out",
                "msg/s",
                (
                    ("sum(rate(headrace_messages_published_total{PICK}[$__rate_interval]))", "in"),
                    ("sum(rate(headrace_messages_delivered_total{PICK}[$__rate_interval]))", "out"),
                    (
                        "sum(rate(headrace_messages_acknowledged_total{PICK}[$__rate_interval]))",
                        "acknowledged",
                    ),
                ),
            ),
            Panel(
                "Published",
                "msg/s",
                ((rate("headrace_messages_published_total"), NODE),),
                stacked=True,
            ),
            Panel(
                "In queues",
                "short",
                (
                    ("sum(headrace_queue_messages_ready{PICK})", "ready"),
                    ("sum(headrace_queue_messages_unacknowledged{PICK})", "unacknowledged"),
                    ("sum(headrace_queue_messages_delayed{PICK})", "delayed"),
                    ("sum(headrace_queue_dead_letters{PICK})", "dead letters kept"),
                    ("sum(headrace_queue_archived_messages{PICK})", "archived"),
                ),
                stacked=True,
            ),
        ),
    ),
    (
        "What went otherwise",
        (
            Panel(
                "Redelivered, returned, unroutable",
                "msg/s",
                (
                    (
                        "sum(rate(headrace_messages_redelivered_total{PICK}[$__rate_interval]))",
                        "redelivered",
                    ),
                    (
                        "sum(rate(headrace_messages_returned_total{PICK}[$__rate_interval]))",
                        "returned",
                    ),
                    (
                        "sum(rate(headrace_messages_unroutable_total{PICK}[$__rate_interval]))",
                        "unroutable",
                    ),
                ),
            ),
            Panel(
                "Dead-lettered and discarded",
                "msg/s",
                (
                    (
                        rate("headrace_messages_dead_lettered_total", "reason"),
                        "dead-lettered: {{reason}}",
                    ),
                    (rate("headrace_messages_discarded_total", "reason"), "discarded: {{reason}}"),
                    (
                        "sum(rate(headrace_dead_letters_lost_total{PICK}[$__rate_interval]))",
                        "dead letters lost",
                    ),
                ),
            ),
            Panel(
                "Log-ins",
                "ops",
                ((rate("headrace_logins_total", "protocol, result"), "{{protocol}} {{result}}"),),
            ),
        ),
    ),
    (
        "Clients",
        (
            Panel(
                "Connections",
                "short",
                (
                    (
                        total("headrace_connections", "instance, protocol"),
                        f"{NODE} {{{{protocol}}}}",
                    ),
                ),
                stacked=True,
            ),
            Panel(
                "Connections that come and go",
                "ops",
                (
                    (rate("headrace_connections_opened_total"), f"{NODE} opened"),
                    (rate("headrace_connections_closed_total"), f"{NODE} closed"),
                ),
            ),
            Panel(
                "Channels and consumers",
                "short",
                (
                    ("sum(headrace_channels{PICK})", "channels"),
                    ("sum(headrace_consumers{PICK})", "consumers"),
                    ("sum(headrace_lease_groups{PICK})", "lease groups"),
                ),
            ),
        ),
    ),
    (
        "Replicated logs",
        (
            Panel("Commits", "ops", ((rate("headrace_raft_entries_committed_total"), NODE),)),
            Panel(
                "Time to commit",
                "s",
                (
                    (quantile("headrace_raft_commit_duration_seconds", 0.5), f"{NODE} median"),
                    (quantile("headrace_raft_commit_duration_seconds", 0.99), f"{NODE} p99"),
                ),
            ),
            Panel(
                "Time to sync",
                "s",
                (
                    (quantile("headrace_log_sync_duration_seconds", 0.5), f"{NODE} median"),
                    (quantile("headrace_log_sync_duration_seconds", 0.99), f"{NODE} p99"),
                ),
            ),
        ),
    ),
    (
        "",
        (
            Panel(
                "Groups led", "short", ((total("headrace_raft_groups_led"), NODE),), stacked=True
            ),
            Panel(
                "Elections",
                "ops",
                ((rate("headrace_raft_elections_total"), NODE),),
                text="Terms that began, as replicas see it.",
            ),
            Panel(
                "Entries that peers lack",
                "short",
                ((total("headrace_raft_replication_lag_entries", "peer"), "{{peer}}"),),
            ),
            Panel(
                "Log",
                "bytes",
                (
                    (total("headrace_log_size_bytes"), f"{NODE} files"),
                    (total("headrace_log_live_bytes"), f"{NODE} needed"),
                ),
            ),
        ),
    ),
    (
        "Nodes",
        (
            Panel("Processor", "percentunit", ((rate("process_cpu_seconds_total"), NODE),)),
            Panel(
                "Memory",
                "bytes",
                (
                    (total("headrace_memory_used_bytes"), f"{NODE} used"),
                    (total("headrace_memory_limit_bytes"), f"{NODE} alarm"),
                ),
            ),
            Panel(
                "Free disk",
                "bytes",
                (
                    (total("headrace_disk_free_bytes"), NODE),
                    (total("headrace_disk_free_limit_bytes"), f"{NODE} alarm"),
                ),
            ),
            Panel("Files open", "short", ((total("process_open_fds"), NODE),)),
        ),
    ),
    (
        "",
        (
            Panel(
                "HTTP requests",
                "reqps",
                ((rate("headrace_http_requests_total", "code"), "{{code}}"),),
            ),
            Panel(
                "gRPC calls", "reqps", ((rate("headrace_grpc_calls_total", "code"), "{{code}}"),)
            ),
            Panel(
                "Unary calls, p99",
                "s",
                (
                    (
                        quantile("headrace_grpc_call_duration_seconds", 0.99, "service"),
                        "{{service}}",
                    ),
                    (
                        quantile("headrace_http_request_duration_seconds", 0.99, "handler"),
                        "HTTP {{handler}}",
                    ),
                ),
            ),
            Panel("Lateness of the loop", "s", ((total("headrace_loop_lag_seconds"), NODE),)),
        ),
    ),
)
