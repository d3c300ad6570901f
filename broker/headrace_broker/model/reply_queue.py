"""The pseudo-queue of direct reply-to, which no catalog holds.

A client consumes from REPLY_QUEUE and gives that name as `reply-to`; what it publishes then carries
a name of its own, REPLY_PREFIX and a token, under which replies reach it straight.

Source: https://www.rabbitmq.com/docs/direct-reply-to
"""

from __future__ import annotations

from typing import Final

REPLY_QUEUE: Final = "amq.rabbitmq.reply-to"
REPLY_PREFIX: Final = "amq.rabbitmq.reply-to."
