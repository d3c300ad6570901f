// Who is charged for what, as nodes and links in three layers. Pure.
//
// A node has {id, layer, load, ...}; a link {from, to, load, limit, through}: `through` are ids of
// the sources and queues whose messages take it, so that one of them can be followed; `now` whether
// a limit binds at this moment, and not only a moment ago.

import { lately } from "./limit.js";

const NODES_MAX = 14; // of a layer; the lightest ones are drawn as one
const OTHERS = "others";
const AT_SOURCE = new Set(["account", "credit", "publish-rate", "intake", "node-buffer-bytes", "memory-alarm", "disk-alarm"]);

/** Whether a limit is one of the publisher's side, and not of the queue's. */
export function bindsAtSource(limit) {
  return AT_SOURCE.has(limit);
}

function sourceId(edge) {
  return edge.account ? `source ${edge.account}` : "source hidden";
}

function queueId(edge) {
  return `queue ${edge.vhost} ${edge.queue}`;
}

/** What binds, or has within the last seconds: {limit, queue, now}. */
function binding(told, edge) {
  const row = told.connections[edge.account];
  return row === undefined ? { limit: edge.limit, queue: edge.queue, now: edge.limit !== "" } : lately(row.flow);
}

/** The limit that stops a load at its queue; what stops it elsewhere is none of the queue's. */
function limitAtQueue(edge, bound) {
  return bound.queue === edge.queue && !bindsAtSource(bound.limit) ? bound.limit : "";
}

/** Edges of what nodes tell, and of connections that are stopped though nothing moves any more. */
function allEdges({ edges, connections }) {
  const known = new Set(edges.map((edge) => `${edge.account} ${edge.vhost} ${edge.queue}`));
  const still = Object.values(connections).filter(({ id, vhost, flow }) =>
    flow.limit && flow.queue && !known.has(`${id} ${vhost} ${flow.queue}`));
  return [...edges, ...still.map((row) => ({
    account: row.id, kind: "connection", name: row.name, user_provided_name: row.user_provided_name, node: row.node, user: row.user, vhost: row.vhost,
    queue: row.flow.queue, messages: 0, byte_count: 0, message_rate: 0, byte_rate: 0, load: 0, limit: row.flow.limit, exchanges: [],
  }))];
}

/** The heaviest ids, and those that bind; others stand for one. */
function kept(loads, important) {
  const ranked = [...loads].sort(([one, left], [other, right]) =>
    Number(important.has(other)) - Number(important.has(one)) || right - left || (one < other ? -1 : 1));
  if (ranked.length <= NODES_MAX) return new Map(ranked.map(([id]) => [id, id]));
  const layer = ranked[0][0].split(" ")[0];
  return new Map(ranked.map(([id], at) => [id, at < NODES_MAX - 1 ? id : `${layer} ${OTHERS}`]));
}

function sum(edges, id) {
  const loads = new Map();
  for (const edge of edges) loads.set(id(edge), (loads.get(id(edge)) ?? 0) + edge.load);
  return loads;
}

/**
 * @param told {edges, connections, queues} as the node sends them.
 * @return {nodes, links, edges}
 */
export function buildGraph(told) {
  const edges = allEdges(told);
  const stopped = edges.filter((edge) => binding(told, edge).limit);
  const sources = kept(sum(edges, sourceId), new Set(stopped.map(sourceId)));
  const queues = kept(sum(edges, queueId), new Set(stopped.map(queueId)));
  const nodes = new Map();
  const links = new Map();
  for (const edge of edges) {
    const bound = binding(told, edge);
    const atQueue = limitAtQueue(edge, bound);
    const source = addSource(nodes, sources.get(sourceId(edge)), edge, told.connections[edge.account], bound);
    const queue = addQueue(nodes, queues.get(queueId(edge)), edge, told, atQueue);
    addLinks(nodes, links, source, queue, edge, { begin: bindsAtSource(bound.limit) ? bound.limit : "", end: atQueue, now: bound.now });
  }
  for (const row of Object.values(told.connections)) {
    if (row.flow.limit && !nodes.has(`source ${row.id}`) && !sources.has(`source ${row.id}`) && nodes.size < 3 * NODES_MAX) {
      addSource(nodes, `source ${row.id}`, { account: row.id, kind: "connection", name: row.name, user_provided_name: row.user_provided_name, node: row.node, user: row.user, load: 0, message_rate: 0 }, row, lately(row.flow));
    }
  }
  return { nodes: [...nodes.values()], links: [...links.values()], edges };
}

function addSource(nodes, id, edge, connection, bound) {
  let node = nodes.get(id);
  if (node === undefined) {
    node = { id, layer: 0, load: 0, rate: 0, count: new Set(), limit: "", account: edge.account, kind: edge.kind, name: edge.name, user_provided_name: edge.user_provided_name, user: edge.user, node: edge.node, connection };
    nodes.set(id, node);
  }
  node.load += edge.load;
  node.rate += edge.message_rate;
  node.count.add(sourceId(edge));
  node.limit ||= bound.limit;
  node.now ||= bound.now;
  return node;
}

function addQueue(nodes, id, edge, { queues }, limit) {
  let node = nodes.get(id);
  if (node === undefined) {
    const row = queues[`${encodeURIComponent(edge.vhost)}/${encodeURIComponent(edge.queue)}`];
    node = { id, layer: 2, load: 0, count: new Set(), limit: "", vhost: edge.vhost, name: edge.queue, row };
    nodes.set(id, node);
  }
  node.load += edge.load;
  node.count.add(queueId(edge));
  node.limit ||= limit;
  return node;
}

/** A limit of the source's stands where its links begin, one of a queue's where those end. */
function addLinks(nodes, links, source, queue, edge, gates) {
  const first = { ...gates, end: "" };
  const last = { ...gates, begin: "" };
  const total = edge.exchanges.reduce((all, [, rate]) => all + rate, 0);
  if (total === 0) {
    addLink(links, source, queue, edge.load, gates);
    return;
  }
  for (const [name, rate] of edge.exchanges) {
    const id = `exchange ${edge.vhost} ${name}`;
    const exchange = nodes.get(id) ?? { id, layer: 1, load: 0, vhost: edge.vhost, name, limit: "" };
    nodes.set(id, exchange);
    const part = (edge.load * rate) / total;
    exchange.load += part;
    addLink(links, source, exchange, part, first, source, queue);
    addLink(links, exchange, queue, part, last, source, queue);
  }
}

/** A link between two nodes; a limit stands at its beginning or at its end. */
function addLink(links, from, to, load, { begin, end, now }, source = from, queue = to) {
  const id = `${from.id} > ${to.id}`;
  const link = links.get(id) ?? { id, from: from.id, to: to.id, load: 0, begin: "", end: "", now: false, through: new Set() };
  links.set(id, link);
  link.load += load;
  link.begin ||= begin;
  link.end ||= end;
  if (begin || end) link.now ||= now;
  link.through.add(source.id).add(queue.id).add(from.id).add(to.id);
}
