"""The dashboard about flow control: who waits, for what, and what is held meanwhile."""

from __future__ import annotations

from typing import Final

from panel import NODE, Panel, Row, rate, stat, total

FLOW: Final[tuple[Row, ...]] = (
    (
        "Now",
        (
            stat("Blocked", "none", 'sum(headrace_flow_connections{PICK,state="blocked"})'),
            stat("In flow", "none", 'sum(headrace_flow_connections{PICK,state="flow"})'),
            stat("Saturated queues", "none", "sum(headrace_flow_saturated_queues{PICK})"),
            stat("Confirms deferred", "short", "sum(headrace_flow_deferred_confirms{PICK})"),
            stat("Accounts in debt", "none", "sum(headrace_flow_accounts_in_debt{PICK})"),
            stat(
                "Limits that memory leaves",
                "percentunit",
                "min(headrace_flow_limit_share_ratio{PICK})",
            ),
        ),
    ),
    (
        "Who waits, and for what",
        (
            Panel(
                "Connections by state",
                "short",
                ((total("headrace_flow_connections", "state"), "{{state}}"),),
                stacked=True,
            ),
            Panel(
                "Stopped connections by limit",
                "short",
                ((total("headrace_flow_stopped_connections", "limit"), "{{limit}}"),),
                stacked=True,
                text="What stops each of them at this moment.",
            ),
            Panel(
                "Share of time stopped",
                "percentunit",
                (
                    (
                        "sum by (limit) (rate(headrace_flow_stopped_seconds_total{PICK}"
                        "[$__rate_interval])) / scalar(clamp_min(sum(headrace_connections{PICK}),"
                        " 1))",
                        "{{limit}}",
                    ),
                ),
                stacked=True,
                text="Of all connections together.",
            ),
        ),
    ),
    (
        "What nodes hold for publishers",
        (
            Panel(
                "Held",
                "bytes",
                (
                    (total("headrace_flow_buffered_bytes"), f"{NODE} buffered"),
                    (total("headrace_flow_partial_bytes"), f"{NODE} unfinished"),
                    (total("headrace_flow_pending_bytes"), f"{NODE} under way to queues"),
                    (total("headrace_flow_bytes_max"), f"{NODE} bound"),
                ),
            ),
            Panel(
                "Debts",
                "short",
                ((total("headrace_flow_debt_messages", "kind"), "{{kind}}"),),
                stacked=True,
                text="Messages that were handed to queues and are not done, by what began them.",
            ),
            Panel(
                "Debts in bytes",
                "bytes",
                ((total("headrace_flow_debt_bytes", "kind"), "{{kind}}"),),
                stacked=True,
            ),
        ),
    ),
    (
        "Intake",
        (
            Panel(
                "Publishes in one turn of the loop",
                "short",
                ((total("headrace_flow_intake_messages"), NODE),),
                text="Shrinks by itself where turns take long.",
            ),
            Panel(
                "Waiting",
                "short",
                (
                    (total("headrace_flow_waiting_channels"), f"{NODE} channels"),
                    (total("headrace_flow_unread_connections"), f"{NODE} sockets not read"),
                    (total("headrace_flow_large_publishes_waiting"), f"{NODE} large publishes"),
                ),
            ),
            Panel(
                "Dropped with their connections",
                "msg/s",
                ((rate("headrace_flow_dropped_messages_total"), NODE),),
            ),
        ),
    ),
    (
        "Alarms and limits",
        (
            Panel(
                "Alarms",
                "short",
                ((total("headrace_flow_alarm", "instance, kind"), f"{NODE} {{{{kind}}}}"),),
            ),
            Panel(
                "Memory against its mark",
                "percentunit",
                (
                    (
                        "headrace_memory_used_bytes{PICK} / "
                        "(headrace_memory_limit_bytes{PICK} > 0)",
                        NODE,
                    ),
                ),
            ),
            Panel(
                "Limits in messages",
                "short",
                (("min by (limit) (headrace_flow_limit_messages{PICK})", "{{limit}}"),),
            ),
            Panel(
                "Limits in bytes",
                "bytes",
                (("min by (limit) (headrace_flow_limit_bytes{PICK})", "{{limit}}"),),
            ),
        ),
    ),
    (
        "Queues",
        (
            Panel(
                "Saturated",
                "short",
                ((total("headrace_flow_saturated_queues"), NODE),),
                stacked=True,
            ),
            Panel(
                "Confirms deferred",
                "short",
                ((total("headrace_flow_deferred_confirms"), NODE),),
                stacked=True,
            ),
            Panel(
                "In and out",
                "msg/s",
                (
                    ("sum(rate(headrace_messages_routed_total{PICK}[$__rate_interval]))", "in"),
                    (
                        "sum(rate(headrace_messages_confirmed_total{PICK}[$__rate_interval]))",
                        "confirmed",
                    ),
                    ("sum(rate(headrace_messages_delivered_total{PICK}[$__rate_interval]))", "out"),
                ),
            ),
        ),
    ),
)
