"""Columns that the sink takes, and those that it refuses."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from headrace_pipeline.error import SchemaError
from headrace_pipeline.sinks.exchange.column import check_columns, uniform

ALL = (
    "payload binary, exchange string, routing_key string, headers map<string,string>, "
    "content_type string, content_encoding string, persistent boolean, priority tinyint, "
    "correlation_id string, reply_to string, expiration bigint, message_id string, "
    "published_at timestamp, type string, user_id string, app_id string, cluster_id string"
)


def schema(text: str) -> spark.StructType:
    fields = []
    for each in text.split(", "):
        name, _, kind = each.partition(" ")
        if kind == "map<string,string>":
            made: spark.DataType = spark.MapType(spark.StringType(), spark.StringType())
        elif kind == "map<string,int>":
            made = spark.MapType(spark.StringType(), spark.IntegerType())
        else:
            made = KINDS[kind]()
        fields.append(spark.StructField(name, made))
    return spark.StructType(fields)


KINDS: dict[str, type[spark.DataType]] = {
    "binary": spark.BinaryType,
    "string": spark.StringType,
    "boolean": spark.BooleanType,
    "tinyint": spark.ByteType,
    "bigint": spark.LongType,
    "double": spark.DoubleType,
    "timestamp": spark.TimestampType,
}


@pytest.mark.parametrize(
    "text",
    [
        ALL,
        "payload string",
        "payload binary, properties binary, exchange string, routing_key string",
        "payload string, headers string, expiration string",
    ],
)
def test_any_of_the_columns_will_do(text: str) -> None:
    assert check_columns(schema(text)) == tuple(each.split(" ")[0] for each in text.split(", "))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("routing_key string", "column payload: the sink headrace needs it"),
        ("payload bigint", "column payload: must be string or binary, not bigint"),
        ("payload string, routingkey string", "does not know it; is routing_key meant?"),
        (
            "payload string, queue string",
            "column queue: the sink headrace does not know it; it knows",
        ),
        ("payload string, payload string", "column payload: is there twice"),
        ("payload string, headers map<string,int>", "must be string or map<string,string>, not"),
        ("payload string, priority double", "column priority: must be byte or short or"),
        (
            "payload string, properties binary, app_id string, headers string",
            "column properties: has all properties of a message; drop it, or app_id, headers",
        ),
    ],
)
def test_what_cannot_be_published_is_said(text: str, told: str) -> None:
    with pytest.raises(SchemaError) as caught:
        check_columns(schema(text))
    assert told in str(caught.value)


def test_batches_are_made_uniform() -> None:
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    batch = pa.record_batch(
        {
            "payload": pa.array(["ü", None], pa.large_string()),
            "routing_key": pa.array(["a", "a"]).dictionary_encode(),
            "priority": pa.array([1, None], pa.int8()),
            "expiration": pa.array(["5", None]),
            "published_at": pa.array([at, None], pa.timestamp("us", tz="Etc/UTC")),
            "headers": pa.array([[("a", "b")], None], pa.map_(pa.string(), pa.string())),
        }
    )
    found = uniform(batch)
    assert [str(each.type) for each in found.schema] == [
        "binary",
        "string",
        "int64",
        "string",
        "timestamp[us, tz=UTC]",
        "map<string, string>",
    ]
    assert found.to_pylist()[0] == {
        "payload": "ü".encode(),
        "routing_key": "a",
        "priority": 1,
        "expiration": "5",
        "published_at": at,
        "headers": [("a", "b")],
    }
