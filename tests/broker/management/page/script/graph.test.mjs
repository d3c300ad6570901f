import assert from "node:assert/strict";
import { test } from "node:test";
import { buildGraph } from "static/graph_model.js";
import { fit, layOut, linkWidth } from "static/graph_layout.js";

function edge(account, queue, load, more = {}) {
  return { account, kind: "connection", name: `${account} -> here`, node: "n1", user: "app", vhost: "/", queue, load, message_rate: 1, limit: "", exchanges: [["shop", 1]], ...more };
}

function client(id, limit = null, queue = null) {
  return { id, name: `${id} -> here`, node: "n1", user: "app", vhost: "/", flow: { limit, queue, stopped: { last_10s: 0.5 }, by_limit: {} } };
}

function told(edges, clients = [], queues = {}) {
  return { edges, connections: Object.fromEntries(clients.map((row) => [row.id, row])), queues };
}

const find = (list, id) => list.find((each) => each.id === id);

test("a load goes from who brings it through its exchanges to its queue", () => {
  const { nodes, links } = buildGraph(told([edge("a", "q", 300, { exchanges: [["shop", 2], ["", 1]] })]));
  assert.deepEqual(nodes.map(({ id, layer }) => [id, layer]).sort(), [["exchange / ", 1], ["exchange / shop", 1], ["queue / q", 2], ["source a", 0]]);
  assert.equal(find(links, "source a > exchange / shop").load, 200);
  assert.equal(find(links, "exchange /  > queue / q").load, 100);
});

test("what comes through no known exchange goes straight to its queue", () => {
  const { links } = buildGraph(told([edge("n1/expiry", "dead", 10, { kind: "expiry", exchanges: [] })]));
  assert.deepEqual(links.map(({ id }) => id), ["source n1/expiry > queue / dead"]);
});

test("a limit of the queue's stands at that queue and at no other", () => {
  const stopped = [edge("a", "full", 10, { limit: "watermark" }), edge("a", "idle", 10)];
  const { nodes, links } = buildGraph(told(stopped, [client("a", "watermark", "full")]));
  assert.equal(find(nodes, "source a").limit, "watermark");
  assert.equal(find(nodes, "queue / full").limit, "watermark");
  assert.equal(find(nodes, "queue / idle").limit, "");
  assert.equal(find(links, "exchange / shop > queue / full").end, "watermark");
  assert.equal(find(links, "exchange / shop > queue / idle").end, "");
  assert.equal(find(links, "source a > exchange / shop").begin, "");
});

test("a limit of the publisher's stands where its links begin", () => {
  const { nodes, links } = buildGraph(told([edge("a", "q", 10, { limit: "account" })], [client("a", "account", "q")]));
  assert.equal(find(links, "source a > exchange / shop").begin, "account");
  assert.equal(find(links, "exchange / shop > queue / q").end, "");
  assert.equal(find(nodes, "queue / q").limit, "");
});

test("what bound a moment ago is marked as that", () => {
  const row = client("a");
  row.flow.by_limit = { watermark: { last_10s: 0.4, queue: "q" }, account: { last_10s: 0.1, queue: "q" } };
  const { nodes, links } = buildGraph(told([edge("a", "q", 1), edge("a", "r", 1)], [row]));
  assert.deepEqual([find(nodes, "source a").limit, find(nodes, "source a").now], ["watermark", false]);
  const link = find(links, "exchange / shop > queue / q");
  assert.deepEqual([link.end, link.now], ["watermark", false]);
  assert.equal(find(links, "exchange / shop > queue / r").end, "");
});

test("who is stopped is there though nothing moves any more", () => {
  const { nodes, links } = buildGraph(told([], [client("a", "watermark", "q"), client("b", "memory-alarm"), client("c")]));
  assert.deepEqual(nodes.map(({ id }) => id).sort(), ["queue / q", "source a", "source b"]);
  assert.deepEqual(links.map(({ id, end }) => [id, end]), [["source a > queue / q", "watermark"]]);
});

test("the lightest of many stand as one, and nobody who is stopped among them", () => {
  const many = Array.from({ length: 40 }, (_, at) => edge(`c${at}`, "q", 1000 - at));
  const { nodes } = buildGraph(told(many, [client("c39", "watermark", "q")]));
  const sources = nodes.filter(({ layer }) => layer === 0);
  assert.equal(sources.length, 14);
  assert.ok(sources.some(({ id }) => id === "source c39"));
  assert.equal(find(sources, "source others").count.size, 27);
});

test("other users' connections have no names and stand as one", () => {
  const { nodes } = buildGraph(told([edge("", "q", 5, { name: "" }), edge("", "r", 6, { name: "" })]));
  assert.deepEqual(nodes.filter(({ layer }) => layer === 0).map(({ id }) => id), ["source hidden"]);
});

test("a link knows whose messages take it", () => {
  const { links } = buildGraph(told([edge("a", "q", 1), edge("b", "r", 1)]));
  const link = find(links, "exchange / shop > queue / q");
  assert.ok(link.through.has("source a") && !link.through.has("source b"));
});

test("nodes of a layer stand below each other within the width, also of a phone", () => {
  for (const width of [300, 1200]) {
    const layout = layOut(buildGraph(told([edge("a", "q", 1), edge("b", "r", 9), edge("c", "q", 3)])), width, new Map());
    const places = [...layout.nodes.values()];
    for (const { x, y, width: room, height } of places) {
      assert.ok(x >= 0 && x + room <= width && y >= 0 && y + height <= layout.height);
    }
    for (const layer of [0, 1, 2]) {
      const found = places.filter(({ node }) => node.layer === layer).sort((one, other) => one.y - other.y);
      found.slice(1).forEach((each, at) => assert.ok(each.y >= found[at].y + found[at].height));
    }
    assert.ok(layout.columns[0].x + layout.columns[0].width < layout.columns[1].x);
    assert.ok(layout.columns[1].x + layout.columns[1].width < layout.columns[2].x);
    for (const { x1, y1, x2, y2 } of layout.links) assert.ok([x1, y1, x2, y2].every(Number.isFinite) && x1 < x2);
  }
});

test("what stood somewhere keeps its place among the others", () => {
  const order = new Map();
  layOut(buildGraph(told([edge("a", "q", 9), edge("b", "q", 1)])), 800, order);
  const layout = layOut(buildGraph(told([edge("b", "q", 99), edge("c", "q", 500), edge("a", "q", 1)])), 800, order);
  const y = (id) => layout.nodes.get(`source ${id}`).y;
  assert.ok(y("a") < y("b") && y("b") < y("c"));
  layOut(buildGraph(told([])), 800, order);
  assert.equal(order.size, 0);
});

test("links are wider the more they carry", () => {
  assert.ok(linkWidth(0, 100) < linkWidth(1, 100) && linkWidth(1, 100) < linkWidth(100, 100));
  assert.equal(linkWidth(0, 0), linkWidth(0, 100));
});

test("texts fit the room there is", () => {
  assert.equal(fit("short", 100), "short");
  assert.equal(fit("a-very-long-name", 66), "a-very-lo…");
});
