import assert from "node:assert/strict";
import { test } from "node:test";
import { add, points, prepend } from "static/history.js";
import { parseRoute } from "static/route.js";
import { olderPoints } from "static/samples.js";

test("addresses name views, and what is unknown is the overview", () => {
  assert.deepEqual(parseRoute(""), { name: "overview", section: "overview", parts: [] });
  assert.deepEqual(parseRoute("#/nowhere/x"), { name: "overview", section: "overview", parts: [] });
  assert.deepEqual(parseRoute("#/queues"), { name: "queues", section: "queues", parts: [] });
  assert.deepEqual(parseRoute("#/queues/%2F/a%2Fb"), { name: "queue", section: "queues", parts: ["/", "a/b"] });
  assert.deepEqual(parseRoute("#/connections/n1%2F1%2F5"), { name: "connection", section: "connections", parts: ["n1/1/5"] });
  assert.deepEqual(parseRoute("#/queues/%zz/x").parts, ["%zz", "x"]);
});

test("points are kept in order, the oldest go, and what is older comes before", () => {
  for (let at = 1; at <= 1000; at += 1) add("q", { at, ready: at });
  assert.equal(points("q").length, 900);
  assert.equal(points("q")[0].at, 101);
  add("q", { at: 1000, ready: 5 });
  assert.deepEqual(points("q").at(-1), { at: 1000, ready: 5 });
  prepend("r", [{ at: 1 }, { at: 2 }]);
  add("r", { at: 3 });
  prepend("r", [{ at: 0 }, { at: 2 }]);
  assert.deepEqual(points("r").map(({ at }) => at), [0, 1, 2, 3]);
});

test("samples of the node become points, counters become rates", () => {
  const samples = (...values) => values.map(([timestamp, sample]) => ({ timestamp, sample }));
  const found = olderPoints({
    messages_ready_details: { samples: samples([10_000, 7], [5_000, 3]) },
    message_stats: { publish_details: { samples: samples([10_000, 60], [5_000, 10], [0, 10]) } },
  });
  assert.deepEqual(found, [{ at: 5_000, ready: 3, arrived: 0 }, { at: 10_000, ready: 7, arrived: 10 }]);
  assert.deepEqual(olderPoints({}), []);
});
