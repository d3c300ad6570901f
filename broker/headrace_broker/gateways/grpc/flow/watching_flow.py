"""The stream WatchFlow: stopped publishers and queues, and each change of that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from itertools import islice

from headrace_broker.catalog.access import Caller, check_manages
from headrace_broker.catalog.view import CatalogView
from headrace_broker.catalog.viewer import Viewer, shown_connection, viewer_of
from headrace_broker.gateways.grpc.flow.rendering import (
    queue_name,
    render_cause,
    render_connection,
    render_queue,
)
from headrace_broker.gateways.grpc.flow.watching import Watches
from headrace_broker.gateways.grpc.server.errors import bad_field
from headrace_broker.gateways.grpc.server.lookup import LookupService, check_name
from headrace_broker.model.flow import RUNNING
from headrace_broker.model.limits import WATCH_CHANGES, WATCH_HEARTBEAT_MS
from headrace_broker.runtime.explain.flow_collector import FlowSnapshot, FlowState, Key
from headrace_broker.runtime.explain.flow_watch import FlowWatch
from headrace_protos.broker.v1 import flow_pb2 as messages


class FlowNotifier:
    """State that one client was sent, and its changes since."""

    def __init__(self, request: messages.WatchFlowRequest, view: CatalogView) -> None:
        self._request = request  # with the wanted kinds of states
        self._view = view
        self._told: dict[Key, FlowState] = {}  # what is not running, and no more
        self._around: tuple[tuple[str, ...], int] = ((), 0)
        self._complete = False

    def news(self, picture: FlowSnapshot, viewer: Viewer) -> messages.WatchFlowResponse | None:
        """Return the next message, None when all was told; it counts as told from now on.

        Args:
            picture: the newest.
            viewer: who is told.
        """
        visible = {
            key: state
            for key, each in picture.states.items()
            if (state := self._shown(each, viewer)) is not None
        }
        self._forget_hidden(viewer)
        changed = (
            (key, state)
            for key, state in visible.items()
            if key not in self._told or self._told[key].mark != state.mark
        )
        changes = [self._tell(key, state, viewer) for key, state in islice(changed, WATCH_CHANGES)]
        over = (key for key in list(self._told) if key not in visible)
        changes += [
            self._tell_end(key, viewer) for key in islice(over, WATCH_CHANGES - len(changes))
        ]
        around = (picture.missing, picture.left_out)
        finished = len(changes) < WATCH_CHANGES
        if not changes and around == self._around and self._complete:
            return None
        self._around = around
        message = self.heartbeat()
        message.changes.extend(changes)
        if finished and not self._complete:
            message.snapshot_complete = self._complete = True
        return message

    def heartbeat(self) -> messages.WatchFlowResponse:
        """Return a message without news."""
        missing, left_out = self._around
        return messages.WatchFlowResponse(
            missing_nodes=missing, left_out=left_out, heartbeat_ms=WATCH_HEARTBEAT_MS
        )

    def _shown(self, state: FlowState, viewer: Viewer) -> FlowState | None:
        """Return a state as the client may see it, None for an unwanted one."""
        if not self._wants(state, viewer):
            return None
        if state.connection is not None:
            row = shown_connection(state.connection, self._view, viewer)
            state = state._replace(connection=row)
        if viewer.hides(self._view, state.group):
            state = state._replace(group=0, causes=())  # whose they are, and how many
        return state

    def _forget_hidden(self, viewer: Viewer) -> None:
        """Forget queues that became hidden: nothing is sent about them, not even an end."""
        for key, told in list(self._told.items()):
            if told.queue is not None and not viewer.sees_vhost(told.queue.vhost):
                del self._told[key]

    def _wants(self, state: FlowState, viewer: Viewer) -> bool:
        request = self._request
        connection, queue = state.connection, state.queue
        if connection is not None:
            if request.without_connections or not viewer.knows(connection.user):
                return False
            vhost = connection.vhost
        else:
            assert queue is not None, "a state is that of a connection or of a queue"
            if request.without_queues or not viewer.sees_vhost(queue.vhost):
                return False
            vhost = queue.vhost
        if request.vhost and (vhost != request.vhost or not viewer.sees_vhost(vhost)):
            return False
        return not request.queue or queue_name(state.group, self._view, viewer) == request.queue

    def _tell(self, key: Key, state: FlowState, viewer: Viewer) -> messages.FlowChange:
        self._told[key] = state
        change = self._change(state, viewer)
        change.state = state.state
        change.limit = state.limit
        change.text = state.text
        change.causes.extend(render_cause(cause, viewer) for cause in state.causes)
        return change

    def _tell_end(self, key: Key, viewer: Viewer) -> messages.FlowChange:
        change = self._change(self._told.pop(key), viewer)
        change.state = RUNNING
        return change

    def _change(self, state: FlowState, viewer: Viewer) -> messages.FlowChange:
        if state.connection is not None:
            row = shown_connection(state.connection, self._view, viewer)
            shown = render_connection(row, self._view, viewer)
            return messages.FlowChange(connection=shown)
        assert state.queue is not None
        return messages.FlowChange(queue=render_queue(state.queue, state.stopped_count))


class FlowWatching:
    """Serves streams of changes."""

    def __init__(self, lookup: LookupService, watch: FlowWatch, watches: Watches) -> None:
        self._lookup = lookup  # looks things up
        self._watch = watch  # has the newest picture
        self._watches = watches  # counts the streams

    async def stream(
        self, who: Caller, request: messages.WatchFlowRequest
    ) -> AsyncGenerator[messages.WatchFlowResponse, None]:
        """Send stopped publishers and queues, then each change, for ever.

        Raises:
            CallError: a field of the request is wrong, or the stream ends.
            AmqpError: the caller may not look, or not any more.
        """
        caller = self._watches.caller(who.name)
        with self._watches.one_more() as stopping:
            await self._check(caller, request)
            notifier = FlowNotifier(request, self._lookup.view)
            loop = asyncio.get_running_loop()
            due = loop.time() + WATCH_HEARTBEAT_MS / 1000
            async with self._watch.watching():
                while True:
                    news = self._watch.news
                    viewer = viewer_of(self._watches.caller(who.name), self._lookup.view)
                    message = notifier.news(self._watch.picture, viewer)
                    if message is None:
                        if not await self._watches.wait(news, stopping, due):
                            continue
                        message = notifier.heartbeat()
                    yield message
                    due = loop.time() + WATCH_HEARTBEAT_MS / 1000

    def judge(self, vhost: str, who: Caller) -> None:
        """Refuse a stream about a vhost, or "" about all, to a user without the permission.

        Raises:
            AmqpError: ACCESS_REFUSED.
        """
        check_manages(who)
        if vhost:
            self._lookup.check_sees(who, vhost)

    async def _check(self, who: Caller, request: messages.WatchFlowRequest) -> None:
        if request.vhost:
            await self._lookup.known_vhost(who, request.vhost)
            self._lookup.check_sees(who, request.vhost)
        if request.queue:
            if not request.vhost:
                raise bad_field("vhost", "must be given with a queue")
            check_name("queue", request.queue)
            await self._lookup.known_queue(request.vhost, request.queue, "queue")
        if request.without_connections and request.without_queues:
            raise bad_field("without_queues", "must not be set with without_connections")
