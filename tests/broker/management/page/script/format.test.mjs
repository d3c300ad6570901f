import assert from "node:assert/strict";
import { test } from "node:test";
import { count, duration, bytes, peer, percent, plural, rate, short } from "static/format.js";

const plain = (text) => text.replaceAll("\u202f", " ");

test("counts have room between thousands, and nothing known is a dash", () => {
  assert.deepEqual([0, 999, 1000, 1234567].map(count).map(plain), ["0", "999", "1 000", "1 234 567"]);
  assert.deepEqual([null, undefined].map(count), ["–", "–"]);
});

test("long counts are shortened", () => {
  assert.deepEqual([9999, 10_000, 123_456, 1_500_000, 2.5e9].map(short).map(plain), ["9 999", "10.0k", "123k", "1.50M", "2.50G"]);
});

test("bytes have binary units", () => {
  assert.deepEqual([0, 1023, 1024, 1536, 64 << 20, 200 * 1024].map(bytes).map(plain), ["0 B", "1023 B", "1 KiB", "1.5 KiB", "64 MiB", "200 KiB"]);
});

test("rates, parts and times", () => {
  assert.deepEqual([0, 0.44, 9.94, 9.96, 1234].map(rate).map(plain), ["0 /s", "0.4 /s", "9.9 /s", "10 /s", "1 234 /s"]);
  assert.deepEqual([0, 0.004, 0.5, 1].map(percent).map(plain), ["0 %", "< 1 %", "50 %", "100 %"]);
  assert.deepEqual([0, 9940, 12_000, 600_000, 7_200_000, 1e9].map(duration).map(plain), ["0.0 s", "9.9 s", "12 s", "10 min", "2 h", "12 d"]);
});

test("names", () => {
  assert.equal(peer("10.0.0.1:5 -> 10.0.0.2:5672"), "10.0.0.1:5");
  assert.deepEqual([plural(1, "queue"), plural(2, "queue")], ["1 queue", "2 queues"]);
});
