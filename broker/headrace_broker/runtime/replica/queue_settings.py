"""Settings of a queue's machine, from its effective arguments and policies.

Source: RabbitMQ 4.3, `rabbit_quorum_queue:gather_policy_config` and its dead letter handler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headrace_broker.core.queue.messages.settings import (
    ARCHIVE_FULL,
    ARCHIVE_HEADERS,
    ARCHIVE_NONE,
    DEAD_LETTER_AT_LEAST_ONCE,
    DEAD_LETTER_AT_MOST_ONCE,
    DEAD_LETTER_NONE,
    OVERFLOW_DROP_HEAD,
    OVERFLOW_REJECT_PUBLISH,
    OVERFLOW_REJECT_PUBLISH_DLX,
    PRIORITY_MAX,
    PRIORITY_MAX_OF_QUORUM,
    RETRY_ALL,
    RETRY_DISABLED,
    RETRY_FAILED,
    RETRY_RETURNED,
    UNSET,
    QueueSettings,
)
from headrace_broker.model.client_limits import beyond_plain
from headrace_broker.model.definition import QUEUE_QUORUM, Queue
from headrace_broker.model.limits import (
    ARCHIVE_AGE_MS,
    ARCHIVE_BYTES,
    ARCHIVE_MESSAGES,
    CONSUMER_TIMEOUT_MS,
    DEDUPLICATION_SIZE,
    DELIVERY_LIMIT,
    PUBLISHER_RETENTION_MS,
    WATERMARK_BYTES,
)

DEAD_LETTER_EXCHANGE: Final = "dead-letter-exchange"
DEAD_LETTER_ROUTING_KEY: Final = "dead-letter-routing-key"
EXPIRES: Final = "expires"

_OVERFLOWS: Final = {
    "drop-head": OVERFLOW_DROP_HEAD,
    "reject-publish": OVERFLOW_REJECT_PUBLISH,
    "reject-publish-dlx": OVERFLOW_REJECT_PUBLISH_DLX,
}
_ARCHIVES: Final = {"headers": ARCHIVE_HEADERS, "full": ARCHIVE_FULL}
_RETRIES: Final = {"all": RETRY_ALL, "failed": RETRY_FAILED, "returned": RETRY_RETURNED}


def queue_settings(
    queue: Queue, arguments: Mapping[str, Any], message_bytes_max: int = 0
) -> QueueSettings:
    """Return the settings of a queue from its definition and its effective arguments.

    A duration or count that is no number counts as not given; watermarks follow the largest
    message.
    """
    settings = QueueSettings()
    settings.message_ttl_ms = _number(arguments, "message-ttl", UNSET)
    settings.max_length = _number(arguments, "max-length", UNSET)
    settings.max_length_bytes = _number(arguments, "max-length-bytes", UNSET)
    settings.overflow = _OVERFLOWS.get(arguments.get("overflow", ""), OVERFLOW_DROP_HEAD)
    settings.dead_letter = _dead_letter(arguments, int(settings.overflow))
    settings.single_active = arguments.get("single-active-consumer") is True
    timeout = _number(arguments, "consumer-timeout", CONSUMER_TIMEOUT_MS)
    settings.consumer_timeout_ms = timeout if timeout > 0 else UNSET
    _set_by_kind(settings, queue, arguments)
    _set_deduplication(settings, arguments)
    _set_retry(settings, arguments)
    settings.last_value_key = _name(arguments, "last-value-key")
    settings.group_key = _name(arguments, "group-key")
    settings.fairness_key = _name(arguments, "fairness-key")
    retention = _number(arguments, "publisher-retention", PUBLISHER_RETENTION_MS)
    settings.publisher_retention_ms = max(retention, 0)
    _set_archive(settings, queue, arguments)
    _set_watermarks(settings, arguments, WATERMARK_BYTES + int(beyond_plain(message_bytes_max)))
    return settings


def text(arguments: Mapping[str, Any], name: str) -> str | None:
    """Return an argument that is a string, None where it is not given."""
    value = arguments.get(name)
    return value if isinstance(value, str) else None


def expires_ms(arguments: Mapping[str, Any]) -> int:
    """Return how long a queue may be unused before it is deleted, 0 for ever."""
    return max(_number(arguments, EXPIRES, 0), 0)


def _set_by_kind(settings: QueueSettings, queue: Queue, arguments: Mapping[str, Any]) -> None:
    """Set what a replicated queue has without being told, and a classic one only when told."""
    asked = min(max(_number(arguments, "max-priority", 0), 0), PRIORITY_MAX)
    if queue.kind == QUEUE_QUORUM:
        settings.priority_max = max(asked, PRIORITY_MAX_OF_QUORUM)
        limit = _number(arguments, "delivery-limit", DELIVERY_LIMIT)
        settings.delivery_limit = limit if limit >= 0 else UNSET
    else:
        settings.priority_max = asked


def _set_deduplication(settings: QueueSettings, arguments: Mapping[str, Any]) -> None:
    if arguments.get("message-deduplication") is True:
        settings.deduplicate = True
        settings.dedup_count = max(_number(arguments, "deduplication-size", DEDUPLICATION_SIZE), 1)
        settings.dedup_ms = _number(arguments, "deduplication-ttl", UNSET)


def _set_retry(settings: QueueSettings, arguments: Mapping[str, Any]) -> None:
    """Set delayed retry, which takes a shortest time; that is by default the longest as well."""
    shortest = _number(arguments, "delayed-retry-min", 0)
    kind = _RETRIES.get(arguments.get("delayed-retry-type", ""), RETRY_DISABLED)
    if kind != RETRY_DISABLED and shortest > 0:
        settings.retry_type = kind
        settings.retry_min_ms = shortest
        longest = _number(arguments, "delayed-retry-max", shortest)
        settings.retry_max_ms = max(longest, shortest)


def _set_archive(settings: QueueSettings, queue: Queue, arguments: Mapping[str, Any]) -> None:
    """Set the archive of settled messages, for queues whose messages are on disk."""
    if queue.kind == QUEUE_QUORUM:
        settings.archive = _ARCHIVES.get(arguments.get("archive", ""), ARCHIVE_NONE)
        settings.archive_max_messages = _number(arguments, "archive-max-messages", ARCHIVE_MESSAGES)
        settings.archive_max_bytes = _number(arguments, "archive-max-bytes", ARCHIVE_BYTES)
        settings.archive_max_age_ms = _number(arguments, "archive-max-age", ARCHIVE_AGE_MS)


def _set_watermarks(
    settings: QueueSettings, arguments: Mapping[str, Any], default_bytes: int
) -> None:
    """Set what a queue may hold before confirms are deferred.

    The default is not for a queue with a length limit: what happens when that is full (the oldest
    message goes, a publish is refused) has been said, and would never happen behind a lower mark.
    """
    limited = settings.max_length >= 0 or settings.max_length_bytes >= 0
    high = _number(arguments, "high-watermark-bytes", 0 if limited else default_bytes)
    settings.high_watermark_bytes = high
    settings.low_watermark_bytes = _low(arguments, "low-watermark-bytes", high)
    high = _number(arguments, "high-watermark", 0)
    settings.high_watermark = high
    settings.low_watermark = _low(arguments, "low-watermark", high)


def _low(arguments: Mapping[str, Any], name: str, high: int) -> int:
    """Return a low watermark; one that is not given, or above the high one, is 3/4 of that."""
    low = _number(arguments, name, UNSET)
    return low if 0 <= low <= high else high * 3 // 4


def _dead_letter(arguments: Mapping[str, Any], overflow: int) -> int:
    """Return how sure dead-lettering is; keeping messages and dropping the head do not go along."""
    if text(arguments, DEAD_LETTER_EXCHANGE) is None:
        return DEAD_LETTER_NONE
    if arguments.get("dead-letter-strategy") == "at-least-once" and overflow != OVERFLOW_DROP_HEAD:
        return DEAD_LETTER_AT_LEAST_ONCE
    return DEAD_LETTER_AT_MOST_ONCE


def _number(arguments: Mapping[str, Any], name: str, default: int) -> int:
    value = arguments.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _name(arguments: Mapping[str, Any], name: str) -> bytes:
    value = text(arguments, name)
    return b"" if value is None else value.encode()
