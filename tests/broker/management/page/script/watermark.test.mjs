import assert from "node:assert/strict";
import { test } from "node:test";
import { declared, exactly, parseCount, parseBytes, plan } from "static/watermark.js";

const NONE = { "high-watermark": null, "low-watermark": null, "high-watermark-bytes": null, "low-watermark-bytes": null };

test("a pattern fits its name and no other", () => {
  for (const name of ["orders", "a.b", "x+y(z)[1]{2}|$^*?\\", "ü"]) {
    const pattern = new RegExp(exactly(name));
    assert.ok(pattern.test(name), name);
    assert.ok(!pattern.test(`${name}2`) && !pattern.test(`2${name}`), name);
  }
  assert.ok(!new RegExp(exactly("a.b")).test("aXb"));
});

test("without a policy one is made for this queue only", () => {
  assert.deepEqual(plan({ name: "q", policy: null }, [], { ...NONE, "high-watermark": 5 }), {
    name: "watermark.q",
    created: true,
    body: { pattern: "^q$", definition: { "high-watermark": 5 }, priority: 0, "apply-to": "queues" },
  });
});

test("what the policy says that applies now is kept, and it is outranked", () => {
  const policies = [{ name: "all", pattern: ".*", priority: 7, definition: { "delivery-limit": 3, "high-watermark": 9, "low-watermark": 4 } }];
  const found = plan({ name: "q", policy: "all" }, policies, { ...NONE, "high-watermark": 100 });
  assert.equal(found.created, true);
  assert.equal(found.body.priority, 8);
  assert.deepEqual(found.body.definition, { "delivery-limit": 3, "high-watermark": 100 });
});

test("the queue's own policy is changed in place", () => {
  const policies = [{ name: "mine", pattern: "^q$", priority: 7, definition: { "high-watermark": 9, "max-length": 1 } }];
  const found = plan({ name: "q", policy: "mine" }, policies, NONE);
  assert.deepEqual([found.name, found.created, found.body.priority], ["mine", false, 7]);
  assert.deepEqual(found.body.definition, { "max-length": 1 });
});

test("bytes are read with and without units", () => {
  assert.deepEqual(["", "0", "1024", "64 MiB", "64m", "1.5 GiB", "2kb", "1 k"].map(parseBytes), [null, 0, 1024, 64 << 20, 64 << 20, 1.5 * 2 ** 30, 2048, 1024]);
  for (const text of ["x", "-1", "1 XB", "1e3"]) assert.ok(Number.isNaN(parseBytes(text)), text);
});

test("counts are read with room between thousands", () => {
  assert.deepEqual(["", "7", "1 000", "1\u202f000", "1,000"].map(parseCount), [null, 7, 1000, 1000, 1000]);
  for (const text of ["x", "-1", "1.5"]) assert.ok(Number.isNaN(parseCount(text)), text);
});

test("marks of the declaration are named", () => {
  assert.deepEqual(declared({ arguments: { "x-high-watermark": 5, "x-max-length": 1 } }), ["x-high-watermark: 5"]);
  assert.deepEqual(declared({}), []);
});
