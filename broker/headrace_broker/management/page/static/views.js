// Views by the names that addresses give them.

import { AccessView } from "./view_access.js";
import { ChannelsView } from "./view_channels.js";
import { ConnectionView } from "./view_connection.js";
import { ConnectionsView } from "./view_connections.js";
import { ExchangesView } from "./view_exchanges.js";
import { FlowView } from "./view_flow.js";
import { LimitsView } from "./view_limits.js";
import { OverviewView } from "./view_overview.js";
import { PoliciesView } from "./view_policies.js";
import { QueueView } from "./view_queue.js";
import { QueuesView } from "./view_queues.js";

/**
 * A view has `title`, `element`, `query` (what it has the node send) and may have `update(values)`,
 * `cluster(values)` and `close()`.
 */
export const VIEWS = {
  access: AccessView,
  channels: ChannelsView,
  connection: ConnectionView,
  connections: ConnectionsView,
  exchanges: ExchangesView,
  flow: FlowView,
  limits: LimitsView,
  overview: OverviewView,
  policies: PoliciesView,
  queue: QueueView,
  queues: QueuesView,
};
