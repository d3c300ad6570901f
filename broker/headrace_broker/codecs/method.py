"""The cold methods, through `pamqp`, after checks of what it accepts wrongly.

`pamqp` cuts short what runs past its frame, ignores what is left over, recurses as deep as a table
nests and raises many kinds of exception; so arguments are walked before it sees them, and whatever
is wrong with them becomes an `AmqpError` that names the method and the argument.

Source: AMQP 0-9-1 specification, sections 2.3.5.1, 4.2.4, 4.2.5.
"""

from __future__ import annotations

import re
import struct
from typing import Any, Final, cast

from pamqp import base, commands, decode, encode

from headrace_broker.codecs.field import (
    FieldWalker,
    headers_start,
    long_string_end,
    properties_problem,
    short_string_end,
)
from headrace_broker.codecs.frame import FRAME_END, FRAME_METHOD
from headrace_broker.model.reply_code import (
    COMMAND_INVALID,
    FRAME_ERROR,
    NOT_IMPLEMENTED,
    REPLY_NAMES,
    SYNTAX_ERROR,
    AmqpError,
)

SHORT_STRING_BYTES_MAX: Final = 255

# What pamqp raises on bytes that it cannot turn into values.
_DECODE_ERRORS: Final = (ValueError, TypeError, ArithmeticError, LookupError, OSError, struct.error)

_METHODS: Final = cast(dict[int, type[base.Frame]], commands.INDEX_MAPPING)

_FIXED_BYTES: Final = {"octet": 1, "short": 2, "long": 4, "longlong": 8, "timestamp": 8}

_CLIENT_OKS: Final = frozenset(
    {
        "Basic.CancelOk",
        "Channel.CloseOk",
        "Channel.FlowOk",
        "Connection.CloseOk",
        "Connection.SecureOk",
        "Connection.StartOk",
        "Connection.TuneOk",
    }
)
_SERVER_ONLY: Final = frozenset(
    {
        "Basic.Deliver",
        "Basic.GetEmpty",
        "Basic.Return",
        "Connection.Blocked",
        "Connection.Secure",
        "Connection.Start",
        "Connection.Tune",
        "Connection.Unblocked",
    }
)


def method_name(index: int) -> str:
    """Return the name, "queue.declare-ok", of a method index (class id << 16 | method id)."""
    command = _METHODS.get(index)
    if command is None:
        return f"method {index & 0xFFFF} of class {index >> 16}"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", command.name).lower()


def decode_method(payload: bytes) -> base.Frame:
    """Decode a method that a client sent.

    Args:
        payload: class id, method id, arguments: all of a method frame's payload.

    Returns:
        An object of the method's class in `pamqp.commands`, its arguments as attributes; long
        strings that are not UTF-8 are bytes (`long_string_bytes`), all others are str.

    Raises:
        AmqpError: FRAME_ERROR below 4 bytes; NOT_IMPLEMENTED for an id that AMQP 0-9-1 does not
            have; COMMAND_INVALID for a method that only servers send; SYNTAX_ERROR for arguments
            that do not fill the payload exactly, nest too deep, hold too many fields or no UTF-8
            where it must be.
    """
    if len(payload) < 4:
        raise AmqpError(FRAME_ERROR, "a method frame without class and method id")
    index = int.from_bytes(payload[:4], "big")
    name = method_name(index)
    found = _METHODS.get(index)
    if found is None:
        raise AmqpError(NOT_IMPLEMENTED, f"AMQP 0-9-1 has no {name}")
    if found.name in _SERVER_ONLY or (found.name.endswith("Ok") and found.name not in _CLIENT_OKS):
        raise AmqpError(COMMAND_INVALID, f"{name} comes from servers, never from clients")
    command = found.__new__(found)  # not its constructor: it would validate and warn
    _check_arguments(name, command, payload)
    try:
        command.unmarshal(payload[4:])
    except _DECODE_ERRORS as error:
        raise AmqpError(SYNTAX_ERROR, f"{name}: {error}") from error
    return command


def encode_method(channel: int, command: base.Frame) -> bytes:
    """Return a method frame.

    Names may be any UTF-8 of up to 255 bytes: `pamqp`'s own narrower rules (`validate`) are passed
    over here, but its constructors apply them, so set such a name as attribute (or use
    `queue_declare_ok`).

    Raises:
        TypeError: an argument cannot be encoded, for instance a short string above 255 bytes.
    """
    parts = [struct.pack(">I", command.index)]
    bits = 0
    bit_count = 0
    for argument in command.attributes():
        kind = command.amqp_type(argument)
        value: Any = command[argument]
        if bit_count == 8 or (bit_count and kind != "bit"):
            parts.append(bytes((bits,)))
            bits = bit_count = 0
        if kind == "bit":
            bits |= bool(value) << bit_count
            bit_count += 1
        else:
            parts.append(encode.by_type(value, kind))
    if bit_count:
        parts.append(bytes((bits,)))
    payload = b"".join(parts)
    return struct.pack(">BHI", FRAME_METHOD, channel, len(payload)) + payload + bytes((FRAME_END,))


def channel_open_ok() -> base.Frame:
    """Return channel.open-ok with its reserved long string empty, as all brokers send it.

    Some clients pass over four bytes; `pamqp` would put text there.
    """
    command = commands.Channel.OpenOk()
    command.channel_id = ""
    return command


def queue_declare_ok(queue: str, message_count: int, consumer_count: int) -> base.Frame:
    """Return queue.declare-ok for any name of up to 255 bytes (`pamqp` would refuse some)."""
    command = commands.Queue.DeclareOk("", message_count, consumer_count)
    command.queue = queue
    return command


def encode_close(
    channel: int, code: int, text: str, class_id: int = 0, method_id: int = 0
) -> bytes:
    """Return channel.close, or on channel 0 connection.close, with the name of the code put first.

    Class and method are those at fault, 0 for none; the text may have any length.
    """
    reply = reply_text(code, text)
    if channel == 0:
        return encode_method(0, commands.Connection.Close(code, reply, class_id, method_id))
    return encode_method(channel, commands.Channel.Close(code, reply, class_id, method_id))


def reply_text(code: int, text: str) -> str:
    """Return "CODE_NAME - text", cut to what a short string holds."""
    return cut_short_string(f"{REPLY_NAMES[code]} - {text}")


def cut_short_string(text: str) -> str:
    """Return as many characters of `text` as fit into 255 bytes of UTF-8."""
    data = text.encode("utf-8", "replace")
    return data[:SHORT_STRING_BYTES_MAX].decode("utf-8", "ignore")


def long_string_bytes(value: str | bytes) -> bytes:
    """Return the bytes of a decoded long string, as they were on the wire."""
    return value.encode() if isinstance(value, str) else value


def decode_properties(properties: bytes) -> commands.Basic.Properties:
    """Decode property flags and list; AmqpError SYNTAX_ERROR where they are malformed."""
    _check_properties(properties)
    found = commands.Basic.Properties()
    try:
        found.unmarshal(int.from_bytes(properties[:2], "big"), properties[2:])
    except _DECODE_ERRORS as error:
        raise AmqpError(SYNTAX_ERROR, f"properties: {error}") from error
    return found


def decode_headers(properties: bytes) -> dict[str, Any]:
    """Decode only the headers of a property block; {} without any. As `decode_properties`."""
    _check_properties(properties)
    start = headers_start(properties)
    if start < 0:
        return {}
    try:
        return decode.field_table(properties[start:])[1]
    except _DECODE_ERRORS as error:
        raise AmqpError(SYNTAX_ERROR, f"headers: {error}") from error


def decode_amqplain(response: bytes) -> dict[str, Any]:
    """Decode AMQPLAIN's response, a table without length; AmqpError SYNTAX_ERROR if malformed."""
    walker = FieldWalker()
    if walker.fields(response, 0, len(response)) < 0:
        raise AmqpError(SYNTAX_ERROR, f"AMQPLAIN response: {walker.problem}")
    try:
        return decode.field_table(struct.pack(">I", len(response)) + response)[1]
    except _DECODE_ERRORS as error:
        raise AmqpError(SYNTAX_ERROR, f"AMQPLAIN response: {error}") from error


def _check_properties(properties: bytes) -> None:
    if len(properties) < 2:
        raise AmqpError(SYNTAX_ERROR, "a property block without flags")
    problem = properties_problem(properties, 0, len(properties))
    if problem:
        raise AmqpError(SYNTAX_ERROR, problem)


def _check_arguments(name: str, command: base.Frame, payload: bytes) -> None:
    """Walk the arguments: each within the payload, all of them filling it."""
    pos = 4
    bit_count = 0
    walker = FieldWalker()
    for argument in command.attributes():
        kind = command.amqp_type(argument)
        if kind == "bit":
            pos += bit_count % 8 == 0
            bit_count += 1
        else:
            bit_count = 0
            pos = _argument_end(payload, pos, kind, walker)
        if pos < 0 or pos > len(payload):
            problem = walker.problem or "runs past the end of the frame"
            raise AmqpError(SYNTAX_ERROR, f"{name}: {argument}: {problem}")
    if pos != len(payload):
        raise AmqpError(SYNTAX_ERROR, f"{name}: {len(payload) - pos} bytes follow the arguments")


def _argument_end(payload: bytes, pos: int, kind: str, walker: FieldWalker) -> int:
    if kind == "shortstr":
        end = int(short_string_end(payload, pos, len(payload)))
        if end >= 0 and not _is_utf8(payload[pos + 1 : end]):
            walker.problem = "is not UTF-8"
            return -1
        return end
    if kind == "longstr":
        return int(long_string_end(payload, pos, len(payload)))
    if kind == "table":
        return int(walker.table(payload, pos, len(payload)))
    return pos + _FIXED_BYTES[kind]


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
