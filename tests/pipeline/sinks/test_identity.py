"""Identity of a task at the broker."""

from __future__ import annotations

import pytest

from headrace_client.publisher import SEQUENCE_MAX
from headrace_pipeline.error import OptionError, PipelineError
from headrace_pipeline.sinks.exchange.fingerprint import BITS
from headrace_pipeline.sinks.exchange.identity import (
    BATCH_ID,
    QUERY_ID,
    SPECULATION,
    identity,
    refuse_speculation,
    stream_of,
)
from headrace_pipeline.sinks.exchange.option import ROUND_MAX

LAST = (1 << BITS) - 1


def test_the_same_rows_of_the_same_batch_are_known_again() -> None:
    assert identity("q", 3, 5, 77) == identity("q", 3, 5, 77)
    assert identity("q", 3, 5, 77).publisher_id == "q/3"


def test_other_rows_have_another_epoch_and_a_later_batch_always_a_higher_one() -> None:
    assert identity("q", 3, 5, 77).epoch != identity("q", 3, 5, 78).epoch
    assert identity("q", 3, 5, LAST).epoch < identity("q", 3, 6, 0).epoch


def test_epochs_are_what_the_broker_takes() -> None:
    assert identity("q", 0, ROUND_MAX, LAST).epoch == SEQUENCE_MAX
    assert identity("q", 0, 0, 0).epoch == 0
    with pytest.raises(PipelineError, match="begin a new checkpoint"):
        identity("q", 0, ROUND_MAX + 1, 0)


def test_a_stream_is_its_query_unless_it_has_a_name() -> None:
    said = {QUERY_ID: "query", BATCH_ID: "12"}
    assert stream_of(said.get, "") == ("query", 12)
    assert stream_of(said.get, "mine") == ("mine", 12)
    with pytest.raises(PipelineError, match="not with a continuous trigger"):
        stream_of({QUERY_ID: "query"}.get, "")


def test_speculation_is_refused() -> None:
    for value in ("false", "False", ""):
        refuse_speculation({SPECULATION: value}.get)
    assert SPECULATION == "spark.speculation"
    with pytest.raises(OptionError, match=r"option spark\.speculation: must be false"):
        refuse_speculation({SPECULATION: "True"}.get)
