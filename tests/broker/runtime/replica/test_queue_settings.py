"""Arguments and policies as a machine's settings."""

from __future__ import annotations

from typing import Any

import pytest

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
    RETRY_ALL,
    RETRY_DISABLED,
    RETRY_FAILED,
    RETRY_RETURNED,
    UNSET,
    QueueSettings,
    decode_settings,
    encode_settings,
)
from headrace_broker.model.definition import QUEUE_CLASSIC, QUEUE_QUORUM, Queue
from headrace_broker.model.limits import ARCHIVE_AGE_MS, ARCHIVE_BYTES, ARCHIVE_MESSAGES
from headrace_broker.runtime.replica.queue_settings import expires_ms, queue_settings, text

QUORUM = Queue("/", "work", QUEUE_QUORUM, 7, (1, 2, 3))
CLASSIC = Queue("/", "here", QUEUE_CLASSIC, 8, (1,), durable=False)
HALF_AN_HOUR = 1_800_000


def settings(queue: Queue = QUORUM, **arguments: Any) -> QueueSettings:
    """Settings of a queue; underscores stand for hyphens."""
    found = queue_settings(queue, {name.replace("_", "-"): arguments[name] for name in arguments})
    kept = decode_settings(encode_settings(found))
    assert kept is not None
    assert encode_settings(kept) == encode_settings(found)
    return found


def test_replicated_queue_that_is_told_nothing():
    found = settings()
    assert (found.delivery_limit, found.priority_max) == (20, 31)
    assert found.consumer_timeout_ms == HALF_AN_HOUR
    assert (found.message_ttl_ms, found.max_length, found.max_length_bytes) == (UNSET,) * 3
    assert (found.overflow, found.dead_letter) == (OVERFLOW_DROP_HEAD, DEAD_LETTER_NONE)
    assert (found.single_active, found.deduplicate) == (False, False)
    assert found.retry_type == RETRY_DISABLED


def test_classic_queue_that_is_told_nothing():
    found = settings(CLASSIC)
    assert (found.delivery_limit, found.priority_max) == (UNSET, 0)
    assert found.consumer_timeout_ms == HALF_AN_HOUR


def test_limits_and_times_are_taken_over():
    found = settings(message_ttl=0, max_length=5, max_length_bytes=6, consumer_timeout=7)
    assert (found.message_ttl_ms, found.max_length, found.max_length_bytes) == (0, 5, 6)
    assert found.consumer_timeout_ms == 7


def test_numbers_of_publishers_are_remembered_for_a_week():
    assert settings().publisher_retention_ms == 7 * 24 * 3_600_000
    assert settings(publisher_retention=5).publisher_retention_ms == 5
    assert settings(publisher_retention=0).publisher_retention_ms == 0


def test_consumer_timeout_of_nothing_is_none():
    assert settings(consumer_timeout=0).consumer_timeout_ms == UNSET


@pytest.mark.parametrize(("given", "limit"), [(0, 0), (3, 3), (-1, UNSET), (-5, UNSET)])
def test_delivery_limit_may_be_none(given: int, limit: int):
    assert settings(delivery_limit=given).delivery_limit == limit


def test_classic_queue_has_no_delivery_limit():
    assert settings(CLASSIC, delivery_limit=3).delivery_limit == UNSET


@pytest.mark.parametrize(("given", "highest"), [(0, 0), (5, 5), (31, 31), (255, 255)])
def test_classic_queue_has_the_priorities_that_it_asks_for(given: int, highest: int):
    assert settings(CLASSIC, max_priority=given).priority_max == highest
    # A queue of this type by default may have the argument of a classic one.
    assert settings(QUORUM, max_priority=given).priority_max == max(highest, 31)


@pytest.mark.parametrize(
    ("given", "overflow"),
    [
        ("drop-head", OVERFLOW_DROP_HEAD),
        ("reject-publish", OVERFLOW_REJECT_PUBLISH),
        ("reject-publish-dlx", OVERFLOW_REJECT_PUBLISH_DLX),
    ],
)
def test_overflow(given: str, overflow: int):
    assert settings(overflow=given).overflow == overflow


@pytest.mark.parametrize(
    ("arguments", "outcome"),
    [
        ({}, DEAD_LETTER_NONE),
        ({"dead_letter_routing_key": "k"}, DEAD_LETTER_NONE),
        ({"dead_letter_strategy": "at-least-once"}, DEAD_LETTER_NONE),
        ({"dead_letter_exchange": ""}, DEAD_LETTER_AT_MOST_ONCE),
        ({"dead_letter_exchange": "x"}, DEAD_LETTER_AT_MOST_ONCE),
        (
            {"dead_letter_exchange": "x", "dead_letter_strategy": "at-least-once"},
            DEAD_LETTER_AT_MOST_ONCE,
        ),
        (
            {
                "dead_letter_exchange": "x",
                "dead_letter_strategy": "at-least-once",
                "overflow": "reject-publish",
            },
            DEAD_LETTER_AT_LEAST_ONCE,
        ),
        (
            {
                "dead_letter_exchange": "x",
                "dead_letter_strategy": "at-most-once",
                "overflow": "reject-publish",
            },
            DEAD_LETTER_AT_MOST_ONCE,
        ),
    ],
)
def test_strategy_is_what_the_overflow_allows(arguments: dict[str, Any], outcome: int):
    assert settings(**arguments).dead_letter == outcome


@pytest.mark.parametrize(
    ("arguments", "outcome"),
    [
        ({"delayed_retry_min": 10}, (RETRY_DISABLED, 0, 0)),
        ({"delayed_retry_type": "disabled", "delayed_retry_min": 10}, (RETRY_DISABLED, 0, 0)),
        ({"delayed_retry_type": "all"}, (RETRY_DISABLED, 0, 0)),
        ({"delayed_retry_type": "all", "delayed_retry_min": 10}, (RETRY_ALL, 10, 10)),
        (
            {"delayed_retry_type": "failed", "delayed_retry_min": 10, "delayed_retry_max": 90},
            (RETRY_FAILED, 10, 90),
        ),
        (
            {"delayed_retry_type": "returned", "delayed_retry_min": 10, "delayed_retry_max": 5},
            (RETRY_RETURNED, 10, 10),
        ),
    ],
)
def test_delayed_retry(arguments: dict[str, Any], outcome: tuple[int, int, int]):
    found = settings(**arguments)
    assert (found.retry_type, found.retry_min_ms, found.retry_max_ms) == outcome


def test_deduplication_and_keys():
    found = settings(message_deduplication=True, last_value_key="id", group_key="näme")
    assert (found.deduplicate, found.dedup_count, found.dedup_ms) == (True, 65536, UNSET)
    assert (found.last_value_key, found.group_key) == (b"id", "näme".encode())
    assert settings(fairness_key="tenant").fairness_key == b"tenant"
    assert settings().fairness_key == b""
    bounded = settings(message_deduplication=True, deduplication_size=9, deduplication_ttl=8)
    assert (bounded.dedup_count, bounded.dedup_ms) == (9, 8)
    assert not settings(message_deduplication=False, deduplication_size=9).deduplicate


def test_single_active_consumer():
    assert settings(single_active_consumer=True).single_active


def test_values_of_other_types_count_as_not_given():
    odd = {"message-ttl": "1000", "max-length": True, "dead-letter-exchange": 5, "overflow": 1}
    found = queue_settings(QUORUM, odd)
    assert encode_settings(found) == encode_settings(queue_settings(QUORUM, {}))
    assert text(odd, "dead-letter-exchange") is None


@pytest.mark.parametrize(("arguments", "ms"), [({}, 0), ({"expires": 5}, 5), ({"expires": -1}, 0)])
def test_expiry(arguments: dict[str, Any], ms: int):
    assert expires_ms(arguments) == ms


def marks(queue: Queue = QUORUM, **arguments: Any) -> tuple[int, int, int, int]:
    found = settings(queue, **arguments)
    byte_counts = (found.high_watermark_bytes, found.low_watermark_bytes)
    return (*byte_counts, found.high_watermark, found.low_watermark)


@pytest.mark.parametrize("queue", [QUORUM, CLASSIC])
def test_queue_that_is_told_nothing_has_a_watermark_of_bytes(queue: Queue):
    assert marks(queue) == (64 << 20, 48 << 20, 0, 0)


@pytest.mark.parametrize("name", ["max_length", "max_length_bytes"])
def test_queue_with_a_length_limit_has_only_the_watermarks_it_is_told(name: str):
    assert marks(QUORUM, **{name: 100}) == (0, 0, 0, 0)
    assert marks(QUORUM, **{name: 100}, high_watermark_bytes=8) == (8, 6, 0, 0)


def test_low_watermark_is_three_quarters_unless_told():
    assert marks(high_watermark=10, high_watermark_bytes=0) == (0, 0, 10, 7)
    assert marks(high_watermark=1, low_watermark=0, high_watermark_bytes=0) == (0, 0, 1, 0)
    most = (1 << 63) - 1
    assert marks(high_watermark_bytes=most)[:2] == (most, most * 3 // 4)


def test_low_watermark_above_the_high_one_that_counts_is_not_taken():
    assert marks(low_watermark_bytes=1 << 40) == (64 << 20, 48 << 20, 0, 0)
    assert marks(low_watermark=5) == (64 << 20, 48 << 20, 0, 0)


@pytest.mark.parametrize(
    ("said", "mode"), [("none", ARCHIVE_NONE), ("headers", ARCHIVE_HEADERS), ("full", ARCHIVE_FULL)]
)
def test_what_is_kept_of_settled_messages(said: str, mode: int) -> None:
    bounds: dict[str, Any] = {
        "archive_max_messages": 5,
        "archive_max_bytes": 6,
        "archive_max_age": 7,
    }
    found = settings(archive=said, **bounds)
    assert found.archive == mode
    kept = (found.archive_max_messages, found.archive_max_bytes, found.archive_max_age_ms)
    assert kept == (5, 6, 7)


def test_archives_are_bounded_and_only_of_replicated_queues():
    assert settings().archive == ARCHIVE_NONE
    found = settings(archive="full")
    kept = (found.archive_max_messages, found.archive_max_bytes, found.archive_max_age_ms)
    assert kept == (ARCHIVE_MESSAGES, ARCHIVE_BYTES, ARCHIVE_AGE_MS)
    assert settings(CLASSIC, archive="full").archive == ARCHIVE_NONE
