"""Formats of a node's log, for people or for programs, and the place of its audit log.

What clients say is in many lines: names of users, vhosts and queues, what certificates hold. Here,
where all lines pass, it is kept from looking like a line of its own, from moving a terminal's
cursor, and from filling the log.
"""

from __future__ import annotations

import datetime
import json
import logging
import os
from logging.handlers import RotatingFileHandler
from typing import Any, Final

import msgspec
from typing_extensions import override

from headrace_broker.cli.log_budget import LogBudget
from headrace_broker.cli.session.printable import printable
from headrace_broker.config.configuration import ConfigError, LoggingSection
from headrace_broker.model import limits
from headrace_broker.runtime.security.audit import LOG as AUDIT
from headrace_broker.runtime.security.audit import quoted

HUMAN_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
JSON: Final = "json"
BUDGET: Final = LogBudget()  # of all handlers together
FIELD_DIGITS: Final = 3
_NO_REQUEST: Final = "-"
_FIELDS_BEGIN: Final = " | "
_FIELDS: Final = f"{_FIELDS_BEGIN}event="  # no text of a client looks like it
_NO_FIELDS: Final = r" \x7c event="
_FILE_MODE: Final = 0o600


class HumanFormatter(logging.Formatter):
    """Writes a record as one line for people; an exception follows in lines that are indented.

    Args:
        process: name of the process, where several write to one place.
    """

    def __init__(self, process: str = "") -> None:
        super().__init__(f"{process} {HUMAN_FORMAT}" if process else HUMAN_FORMAT)

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = _bounded(record.message, limits.LOG_MESSAGE_CHARACTERS_MAX)
        line = printable(super().formatMessage(record)).replace(_FIELDS, _NO_FIELDS)
        fields = _event_fields(record)
        if fields:
            pairs = [f"{key}={quoted(value)}" for key, value in fields.items()]
            line += _FIELDS_BEGIN + " ".join(pairs)
        return line

    @override
    def formatException(self, ei: Any) -> str:
        return _indented(super().formatException(ei))

    @override
    def formatStack(self, stack_info: str) -> str:
        return _indented(super().formatStack(stack_info))


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON, all of whose characters can be shown.

    Args:
        process: name of the process, where several write to one place.
    """

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = process

    @override
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _bounded(record.getMessage(), limits.LOG_MESSAGE_CHARACTERS_MAX),
        }
        if self._process:
            line["process"] = self._process
        line |= _event_fields(record)
        request = getattr(record, "request_id", _NO_REQUEST)
        if request != _NO_REQUEST:
            line["request"] = request
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict) and not hasattr(record, "event"):
            line["fields"] = fields
        if record.exc_info:
            text = self.formatException(record.exc_info)
            line["exception"] = _bounded(text, limits.LOG_EXCEPTION_CHARACTERS_MAX)
        return _json(line)


def _event_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return name and fields of a record that `log_event` made, none for others."""
    event = getattr(record, "event", None)
    fields = getattr(record, "fields", None)
    if event is None or not isinstance(fields, dict):
        return {}
    return {"event": event} | {key: _value(value) for key, value in fields.items()}


def _value(value: Any) -> Any:
    """Return a field's value as JSON has it, numbers rounded and texts cut off."""
    if isinstance(value, float):
        return round(value, FIELD_DIGITS)
    if isinstance(value, (int, list)):
        return value
    return _bounded(str(value), limits.LOG_FIELD_CHARACTERS_MAX)


def _bounded(text: str, characters_max: int) -> str:
    left_out = len(text) - characters_max
    return text if left_out <= 0 else f"{text[:characters_max]}... ({left_out} more characters)"


def _indented(text: str) -> str:
    """Return lines none of which begins like a record's."""
    lines = _bounded(text, limits.LOG_EXCEPTION_CHARACTERS_MAX).split("\n")
    return "\n".join(f"  {printable(line)}" for line in lines)


def _json(line: dict[str, Any]) -> str:
    """Return an object as JSON; what cannot be shown is escaped, and comes back when it is read."""
    try:
        text = msgspec.json.encode(line, enc_hook=str).decode()
    except UnicodeEncodeError:  # lone surrogates
        text = json.dumps(line, default=str)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def begin(level: str) -> None:
    """Write log records of a level of `logging` and above to the error output, for people."""
    handler = logging.StreamHandler()
    handler.setFormatter(HumanFormatter())
    handler.addFilter(BUDGET)
    logging.basicConfig(level=level.upper(), handlers=[handler])  # unless somebody else has


def set_up(section: LoggingSection, process: str = "") -> None:
    """Write log records as configured from now on; ConfigError for an unwritable file.

    Args:
        section: of the configuration.
        process: name of the process, where several write to one place.
    """
    kind = JsonFormatter if section.format == JSON else HumanFormatter
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, (HumanFormatter, JsonFormatter)):  # made by `begin`
            handler.setFormatter(kind(process))
    if section.audit_file:
        try:
            file = _AuditFile(
                section.audit_file,
                maxBytes=limits.AUDIT_FILE_BYTES_MAX,
                backupCount=limits.AUDIT_FILES_KEPT,
                encoding="utf-8",
            )
        except OSError as error:
            text = f"{section.audit_file}: cannot be written: {error.strerror}"
            raise ConfigError(f"logging.audit_file: {text}") from None
        file.setFormatter(kind(process))
        file.addFilter(BUDGET)
        AUDIT.addHandler(file)
    AUDIT.setLevel(logging.INFO)  # whatever else is left out


class _AuditFile(RotatingFileHandler):
    """A file that only its owner reads."""

    @override
    def _open(self) -> Any:
        os.close(os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _FILE_MODE))
        return super()._open()
