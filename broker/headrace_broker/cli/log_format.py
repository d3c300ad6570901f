"""How a node writes its log, for people or for programs, and where its audit log goes."""

from __future__ import annotations

import datetime
import logging
import os
from logging.handlers import RotatingFileHandler
from typing import Any, Final

import msgspec
from typing_extensions import override

from headrace_broker.config import ConfigError, LoggingSection
from headrace_broker.model.limits import AUDIT_FILE_BYTES_MAX, AUDIT_FILES_KEPT
from headrace_broker.runtime.audit import LOG as AUDIT

HUMAN_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
JSON: Final = "json"
_NO_REQUEST: Final = "-"
_FILE_MODE: Final = 0o600


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        request = getattr(record, "request_id", _NO_REQUEST)
        if request != _NO_REQUEST:
            line["request"] = request
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            line["fields"] = fields
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode("utf-8", "replace")


def set_up(section: LoggingSection) -> None:
    """Have all log records from now on written as the configuration says.

    Raises:
        ConfigError: the file for the audit log cannot be written.
    """
    if section.format == JSON:
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonFormatter())
    if section.audit_file:
        try:
            file = _AuditFile(
                section.audit_file,
                maxBytes=AUDIT_FILE_BYTES_MAX,
                backupCount=AUDIT_FILES_KEPT,
                encoding="utf-8",
            )
        except OSError as error:
            text = f"{section.audit_file}: cannot be written: {error.strerror}"
            raise ConfigError(f"logging.audit_file: {text}") from None
        human = logging.Formatter(HUMAN_FORMAT)
        file.setFormatter(JsonFormatter() if section.format == JSON else human)
        AUDIT.addHandler(file)
    AUDIT.setLevel(logging.INFO)  # whatever else is left out


class _AuditFile(RotatingFileHandler):
    """A file that only its owner reads."""

    @override
    def _open(self) -> Any:
        os.close(os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _FILE_MODE))
        return super()._open()
