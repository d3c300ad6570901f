"""The columns that the sink takes, and Arrow batches with nothing else."""

from __future__ import annotations

import difflib
from typing import Final

import pyarrow as pa
from pyspark.sql import types as spark

from headrace_pipeline.error import SchemaError

PAYLOAD: Final = "payload"
EXCHANGE: Final = "exchange"
ROUTING_KEY: Final = "routing_key"
HEADERS: Final = "headers"
PROPERTIES: Final = "properties"  # AMQP's property block

_TEXT: Final = (spark.StringType, spark.VarcharType, spark.CharType)
_BYTES: Final = (*_TEXT, spark.BinaryType)
_WHOLE: Final = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)
_TIME: Final = (spark.TimestampType,)

# Single properties and the types that each may have.
SINGLE: Final[dict[str, tuple[type[spark.DataType], ...]]] = {
    "content_type": _TEXT,
    "content_encoding": _TEXT,
    HEADERS: (*_TEXT, spark.MapType),
    "persistent": (spark.BooleanType,),
    "priority": _WHOLE,
    "correlation_id": _TEXT,
    "reply_to": _TEXT,
    "expiration": (*_TEXT, *_WHOLE),
    "message_id": _TEXT,
    "published_at": _TIME,
    "type": _TEXT,
    "user_id": _TEXT,
    "app_id": _TEXT,
    "cluster_id": _TEXT,
}
_ALL: Final = {
    PAYLOAD: _BYTES,
    EXCHANGE: _TEXT,
    ROUTING_KEY: _TEXT,
    PROPERTIES: (spark.BinaryType,),
    **SINGLE,
}

_MAP: Final = pa.map_(pa.string(), pa.string())


def check_columns(schema: spark.StructType) -> tuple[str, ...]:
    """Return the names of a DataFrame's columns if the sink can publish its rows.

    Raises:
        SchemaError: a column is unknown, missing, there twice, or has another type.
    """
    names = tuple(schema.fieldNames())
    for at, field in enumerate(schema.fields):
        if field.name not in _ALL:
            raise SchemaError(_unknown(field.name))
        if field.name in names[:at]:
            raise SchemaError(f"column {field.name}: is there twice")
        _check_type(field)
    if PAYLOAD not in names:
        raise SchemaError(f"column {PAYLOAD}: the sink headrace needs it, as binary or string")
    singles = [name for name in names if name in SINGLE]
    if PROPERTIES in names and singles:
        raise SchemaError(
            f"column {PROPERTIES}: has all properties of a message; "
            f"drop it, or {', '.join(singles)}"
        )
    return names


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, _ALL, 1)
    hint = f"; is {near[0]} meant?" if near else ""
    return (
        f"column {name}: the sink headrace does not know it{hint}; it knows {', '.join(_ALL)}: "
        "select what is to be published"
    )


def _check_type(field: spark.StructField) -> None:
    kinds = _ALL[field.name]
    kind = field.dataType
    fits = isinstance(kind, kinds)
    if isinstance(kind, spark.MapType):
        both = kind.keyType, kind.valueType
        fits = fits and all(isinstance(each, spark.StringType) for each in both)
    if not fits:
        wanted = " or ".join(dict.fromkeys(_word(each) for each in kinds))
        found = kind.simpleString()
        raise SchemaError(f"column {field.name}: must be {wanted}, not {found}")


def _word(kind: type[spark.DataType]) -> str:
    if kind is spark.MapType:
        return "map<string,string>"
    if kind in (spark.VarcharType, spark.CharType):
        return "string"
    return str(kind.typeName())


def uniform(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose columns have one Arrow type each, for any type from Spark.

    Texts of `payload` become bytes, whole numbers int64, times microseconds in UTC, and
    dictionaries and large types plain ones.
    """
    columns = [
        column.cast(_type_of(name, column.type))
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _type_of(name: str, found: pa.DataType) -> pa.DataType:
    if name in (PAYLOAD, PROPERTIES):
        return pa.binary()
    if name == "persistent":
        return pa.bool_()
    if name == "published_at":
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_map(found):
        return _MAP
    return pa.int64() if pa.types.is_integer(found) else pa.string()
