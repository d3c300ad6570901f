"""Permission to copy the messages of a queue, for a backup or out of one; see `access`."""

from __future__ import annotations

from headrace_broker.catalog.access import (
    QUEUE,
    Caller,
    check_administers,
    check_allowed,
    refused,
    stranger_text,
)
from headrace_broker.catalog.permission import READ, Rights
from headrace_broker.catalog.view import CatalogView
from headrace_broker.model.definition import Queue
from headrace_broker.model.reply_code import AmqpError


def check_copies(caller: Caller, rights: Rights, operation: str, vhost: str, queue: str) -> None:
    """Refuse to read all messages of a queue for a backup (READ), or to put them back (WRITE).

    It takes an administrator with a permission in the vhost, whether the queue is there or not.
    """
    check_administers(caller)
    if not rights.may_enter(caller.name, vhost):
        raise refused(stranger_text(caller.name, vhost))
    check_allowed(rights, caller.name, vhost, operation, QUEUE, queue)


def backup_refusal(view: CatalogView, user: str, queue: Queue) -> str:
    """Return why a user may not read a queue for a backup now, "" when they may."""
    known = view.user(user)
    caller = Caller(user, known.tags if known is not None else ())
    try:
        check_copies(caller, Rights(view), READ, queue.vhost, queue.name)
    except AmqpError as error:
        return error.text
    return ""
