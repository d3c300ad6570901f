import assert from "node:assert/strict";
import { test } from "node:test";
import { linePath, byteTicks, ticks, timeTicks } from "static/scale.js";

test("ticks are round and reach above the largest value", () => {
  assert.deepEqual(ticks(0), [0, 1]);
  assert.deepEqual(ticks(95), [0, 50, 100]);
  assert.deepEqual(ticks(0.7), [0, 0.2, 0.4, 0.6000000000000001, 0.8]);
  for (const most of [1, 3, 17, 999, 1e6, 12345678]) {
    const found = ticks(most);
    assert.ok(found.at(-1) >= most && found.length <= 7, `${most}: ${found}`);
  }
});

test("ticks of bytes are powers of two", () => {
  assert.deepEqual(byteTicks(100 << 20), [0, 32, 64, 96, 128].map((each) => each << 20));
  assert.deepEqual(byteTicks(0), [0, 1024]);
});

test("ticks of time stand at round times within the stretch", () => {
  assert.deepEqual(timeTicks(1_000, 61_000, 4), [15_000, 30_000, 45_000, 60_000]);
  assert.ok(timeTicks(0, 900_000, 5).length <= 6);
});

test("a line has gaps where nothing is known", () => {
  assert.equal(linePath([[0, 1], [1, 2], [2, null], [3, 4]]), "M0.0 1.0L1.0 2.0M3.0 4.0");
  assert.equal(linePath([]), "");
});
