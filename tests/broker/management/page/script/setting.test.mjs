import assert from "node:assert/strict";
import { test } from "node:test";
import { blamed, changes, gathered, nameProblem, read, written, Wrong } from "static/setting.js";

test("a text stands for the value that it looks like", () => {
  assert.deepEqual(["true", "false", " 7 ", "-1", "full", '"7"', '""', "a b"].map((text) => read("x", text)), [true, false, 7, -1, "full", "7", "", "a b"]);
});

test("bytes are read with units, and only where bytes are meant", () => {
  assert.equal(read("max-length-bytes", "64 MiB"), 64 << 20);
  assert.equal(read("default-queue-high-watermark-bytes", "2k"), 2048);
  assert.equal(read("dead-letter-routing-key", "64 MiB"), "64 MiB");
});

test("what cannot be read is refused by name", () => {
  for (const text of ["", "  ", "9007199254740993", '"open']) assert.throws(() => read("overflow", text), (wrong) => wrong instanceof Wrong && wrong.message.includes("'overflow'"), text);
});

test("what is written is read as the same", () => {
  for (const value of [true, 0, -7, 1e15, "", "full", "7", "true", " x ", '"', "64 MiB", "a.b", "nul\u0000"]) {
    for (const name of ["archive", "max-length-bytes"]) assert.strictEqual(read(name, written(name, value)), value, JSON.stringify(value));
  }
  assert.equal(written("archive", "full"), "full");
});

test("empty lines are no settings; half a line and a name that comes twice are refused", () => {
  assert.deepEqual(gathered([["", ""], [" max-length ", "5"], ["archive", "full"]]), { "max-length": 5, archive: "full" });
  assert.throws(() => gathered([["", "5"]]), /'5' has no name/);
  assert.throws(() => gathered([["max-length", ""]]), /'max-length' has no value/);
  assert.throws(() => gathered([["a", "1"], ["a", "2"]]), /'a' is there twice/);
  assert.deepEqual(gathered([["__proto__", "1"]]), JSON.parse('{"__proto__": 1}'));
});

test("limits turn into others by what differs", () => {
  assert.deepEqual(changes({ a: 1, b: 2, c: 3 }, { b: 2, c: 4, d: 5 }), [["a", null], ["c", 4], ["d", 5]]);
});

test("a refusal is told beside the field that it is about", () => {
  const fields = ["vhost", "name", "pattern", "priority", "definition"];
  for (const [reason, field] of [
    ["pattern: not a regular expression: missing )", "pattern"],
    ["definition: 'max-length' must be an integer", "definition"],
    ["'low-watermark' (9) must not be larger than 'high-watermark' (5)", "definition"],
    ["no vhost 'x'", "vhost"],
    ["the policy's name has 300 bytes, not 1 to 255", "name"],
    ["tags: must be 'monitoring' or 'administrator'", ""],
    ["the node does not answer", ""],
    ["limit 'max-queues' must be an integer", ""],
  ]) assert.equal(blamed(reason, fields), field, reason);
  assert.equal(blamed("limit 'max-queues' must be an integer", ["name", "limits"]), "limits");
  assert.equal(blamed("no user 'ann'", ["user", "vhost"]), "user");
});

test("names that browsers take for parts of a path are refused", () => {
  assert.deepEqual(["orders", "a/b", "..."].map(nameProblem), ["", "", ""]);
  for (const name of ["", ".", ".."]) assert.notEqual(nameProblem(name), "");
});
