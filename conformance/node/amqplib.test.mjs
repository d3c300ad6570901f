import assert from "node:assert/strict";
import { after, before, beforeEach, afterEach, test } from "node:test";

import amqp from "amqplib";

import { CONSUME_URL, PUBLISH_URL, Inbox, fresh } from "./broker.mjs";

const TIMEOUT = { timeout: 30_000 };
const DURABLE = { durable: true };

let publishing, consuming, publisher, consumer;

before(async () => {
  publishing = await amqp.connect(PUBLISH_URL);
  consuming = await amqp.connect(CONSUME_URL);
});

after(async () => {
  await publishing.close();
  await consuming.close();
});

beforeEach(async () => {
  publisher = await publishing.createConfirmChannel();
  consumer = await consuming.createChannel();
  for (const channel of [publisher, consumer]) channel.on("error", () => {});
});

afterEach(async () => {
  for (const channel of [publisher, consumer]) await channel.close().catch(() => {});
});

async function send(queue, ...bodies) {
  for (const body of bodies) publisher.sendToQueue(queue, Buffer.from(body), { persistent: true });
  await publisher.waitForConfirms();
}

async function queueOf(arguments_ = {}) {
  const { queue } = await publisher.assertQueue(fresh("q"), { ...DURABLE, arguments: arguments_ });
  return queue;
}

const texts = (messages) => messages.map((message) => message.content.toString());

test("messages arrive in order, byte for byte, with all their properties", TIMEOUT, async () => {
  const queue = await queueOf();
  const inbox = new Inbox();
  await consumer.consume(queue, (message) => inbox.put(message));
  const headers = {
    text: "é",
    number: 7,
    large: 2 ** 40,
    negative: -1,
    fraction: 0.5,
    yes: true,
    nothing: null,
    list: [1, "two", { three: 3 }],
    table: { inner: "x" },
    bytes: Buffer.from([0, 255]),
  };
  const properties = {
    contentType: "application/json",
    contentEncoding: "identity",
    headers,
    deliveryMode: 2,
    priority: 3,
    correlationId: "correlation",
    replyTo: "answers",
    expiration: "60000",
    messageId: "id",
    timestamp: 1_700_000_000,
    type: "kind",
    userId: "guest",
    appId: "app",
  };
  const bodies = Array.from({ length: 500 }, (_, number) => `message ${number}`);
  for (const body of bodies) publisher.sendToQueue(queue, Buffer.from(body), properties);
  await publisher.waitForConfirms();
  const messages = await inbox.take(bodies.length);
  assert.deepEqual(texts(messages), bodies);
  for (const [name, value] of Object.entries(properties)) {
    assert.deepEqual(messages[0].properties[name], value, name);
  }
  assert.equal(messages[0].fields.redelivered, false);
  consumer.ackAll();
});

test("a body of many frames and an empty one", TIMEOUT, async () => {
  const queue = await queueOf();
  const large = Buffer.alloc(3 << 20, "0123456789abcdef!");
  publisher.sendToQueue(queue, large);
  publisher.sendToQueue(queue, Buffer.alloc(0));
  await publisher.waitForConfirms();
  const first = await consumer.get(queue);
  assert.equal(Buffer.compare(first.content, large), 0);
  const second = await consumer.get(queue);
  assert.equal(second.content.length, 0);
  consumer.ackAll();
});

test("get: message, count and empty", TIMEOUT, async () => {
  const queue = await queueOf();
  assert.equal(await consumer.get(queue), false);
  await send(queue, "a", "b");
  const message = await consumer.get(queue);
  assert.equal(message.content.toString(), "a");
  assert.equal(message.fields.messageCount, 1);
  consumer.ack(message);
  assert.equal((await consumer.get(queue, { noAck: true })).content.toString(), "b");
  assert.equal(await consumer.get(queue), false);
  assert.deepEqual(await consumer.checkQueue(queue), { queue, messageCount: 0, consumerCount: 0 });
});

test("nack with requeue gives back at the front, marked as redelivered", TIMEOUT, async () => {
  const queue = await queueOf();
  await send(queue, "a", "b");
  const message = await consumer.get(queue);
  consumer.nack(message);
  const again = await consumer.get(queue);
  assert.deepEqual([again.content.toString(), again.fields.redelivered], ["a", true]);
  consumer.ack(again);
});

test("prefetch bounds what is out, and an ack lets the next one come", TIMEOUT, async () => {
  const queue = await queueOf();
  const inbox = new Inbox();
  await consumer.prefetch(3);
  await send(queue, "0", "1", "2", "3", "4");
  await consumer.consume(queue, (message) => inbox.put(message));
  const messages = await inbox.take(3);
  assert.equal((await consumer.checkQueue(queue)).messageCount, 2);
  assert.equal(inbox.size, 0);
  consumer.ack(messages[2], true);
  assert.deepEqual(texts(await inbox.take(2)), ["3", "4"]);
});

test("a rejected message is dead-lettered with its history", TIMEOUT, async () => {
  const dead = await queueOf();
  const exchange = fresh("dlx");
  await publisher.assertExchange(exchange, "fanout");
  await publisher.bindQueue(dead, exchange, "");
  const queue = await queueOf({
    "x-dead-letter-exchange": exchange,
    "x-dead-letter-routing-key": "died",
  });
  const inbox = new Inbox();
  await consumer.consume(dead, (message) => inbox.put(message), { noAck: true });
  await send(queue, "bad");
  consumer.reject(await consumer.get(queue), false);
  const [message] = await inbox.take(1);
  const [death] = message.properties.headers["x-death"];
  assert.equal(message.fields.routingKey, "died");
  assert.deepEqual(
    [death.queue, death.reason, death.count, death.exchange, death["routing-keys"]],
    [queue, "rejected", 1, "", [queue]],
  );
  assert.equal(message.properties.headers["x-first-death-queue"], queue);
  assert.equal(message.properties.headers["x-first-death-reason"], "rejected");
});

test("an expired message is dead-lettered", TIMEOUT, async () => {
  const dead = await queueOf();
  const queue = await queueOf({
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": dead,
    "x-message-ttl": 100,
  });
  const inbox = new Inbox();
  await consumer.consume(dead, (message) => inbox.put(message), { noAck: true });
  await send(queue, "late");
  const [message] = await inbox.take(1);
  assert.equal(message.properties.headers["x-death"][0].reason, "expired");
});

test("a full queue refuses publishes", TIMEOUT, async () => {
  const queue = await queueOf({ "x-max-length": 1, "x-overflow": "reject-publish" });
  const published = (body) =>
    new Promise((resolve) =>
      publisher.sendToQueue(queue, Buffer.from(body), {}, (error) => resolve(error === null)),
    );
  const answers = [];
  for (let number = 0; number < 5; number += 1) answers.push(await published(`${number}`));
  assert.equal(answers[0], true);
  assert.equal(answers[4], false); // quorum queues may take one or two more than the bound
});

test("exchanges of all types route as they should", TIMEOUT, async () => {
  const routes = [
    ["direct", "a", {}, [["a", {}, true], ["b", {}, false]]],
    ["fanout", "", {}, [["whatever", {}, true]]],
    ["topic", "a.*.#", {}, [["a.b", {}, true], ["a.b.c", {}, true], ["a", {}, false]]],
    [
      "headers",
      "",
      { "x-match": "all", kind: "x", size: 3 },
      [["", { kind: "x", size: 3, more: 1 }, true], ["", { kind: "x" }, false]],
    ],
    [
      "headers",
      "",
      { "x-match": "any", kind: "x", size: 3 },
      [["", { size: 3 }, true], ["", { size: 4 }, false]],
    ],
  ];
  for (const [type, pattern, arguments_, cases] of routes) {
    const exchange = fresh(type);
    await publisher.assertExchange(exchange, type, DURABLE);
    const queue = await queueOf();
    await publisher.bindQueue(queue, exchange, pattern, arguments_);
    let wanted = 0;
    for (const [key, headers, routed] of cases) {
      publisher.publish(exchange, key, Buffer.from(key), { headers });
      wanted += routed ? 1 : 0;
    }
    await publisher.waitForConfirms();
    assert.equal((await consumer.checkQueue(queue)).messageCount, wanted, type);
    await publisher.unbindQueue(queue, exchange, pattern, arguments_);
    await publisher.deleteExchange(exchange, { ifUnused: true });
  }
});

test("exchanges may be bound to exchanges, and an alternate takes what is left", TIMEOUT, async () => {
  const [source, middle, alternate] = [fresh("source"), fresh("middle"), fresh("alternate")];
  await publisher.assertExchange(alternate, "fanout");
  await publisher.assertExchange(middle, "direct");
  await publisher.assertExchange(source, "topic", { alternateExchange: alternate });
  await publisher.bindExchange(middle, source, "#.red");
  const [routed, left] = [await queueOf(), await queueOf()];
  await publisher.bindQueue(routed, middle, "big.red");
  await publisher.bindQueue(left, alternate, "");
  publisher.publish(source, "big.red", Buffer.from("routed"));
  publisher.publish(source, "big.blue", Buffer.from("left"));
  await publisher.waitForConfirms();
  assert.equal((await consumer.get(routed)).content.toString(), "routed");
  assert.equal((await consumer.get(left)).content.toString(), "left");
  consumer.ackAll();
});

test("a mandatory message without a queue comes back", TIMEOUT, async () => {
  const inbox = new Inbox();
  publisher.on("return", (message) => inbox.put(message));
  publisher.publish("", fresh("nowhere"), Buffer.from("back"), { mandatory: true });
  await publisher.waitForConfirms();
  const [message] = await inbox.take(1);
  assert.equal(message.fields.replyCode, 312);
  assert.equal(message.content.toString(), "back");
});

test("a cancelled consumer gets nothing more", TIMEOUT, async () => {
  const queue = await queueOf();
  const inbox = new Inbox();
  const { consumerTag } = await consumer.consume(queue, (message) => inbox.put(message));
  await send(queue, "first");
  consumer.ack((await inbox.take(1))[0]);
  await consumer.cancel(consumerTag);
  await send(queue, "second");
  assert.equal((await consumer.get(queue, { noAck: true })).content.toString(), "second");
  assert.equal(inbox.size, 0);
});

test("a consumer is told when its queue is deleted", TIMEOUT, async () => {
  const queue = await queueOf();
  const inbox = new Inbox();
  await consumer.consume(queue, (message) => inbox.put(message));
  await publisher.deleteQueue(queue);
  assert.deepEqual(await inbox.take(1), [null]);
});

test("errors close the channel with code and text, and not the connection", TIMEOUT, async () => {
  const missing = fresh("missing");
  await assert.rejects(consumer.checkQueue(missing), { code: 404, message: /NOT_FOUND/ });
  const queue = await queueOf();
  await assert.rejects(publisher.assertQueue(queue, { durable: false }), {
    code: 406,
    message: /inequivalent arg 'durable'/,
  });
  const another = await publishing.createChannel();
  assert.equal((await another.checkQueue(queue)).queue, queue);
  await another.close();
});

test("the higher priority comes first", TIMEOUT, async () => {
  const queue = await queueOf({ "x-max-priority": 5 });
  for (const priority of [1, 5, 3, 5]) {
    publisher.sendToQueue(queue, Buffer.from(`${priority}`), { priority });
  }
  await publisher.waitForConfirms();
  const got = [];
  for (let count = 0; count < 4; count += 1) {
    got.push((await consumer.get(queue, { noAck: true })).content.toString());
  }
  assert.deepEqual(got, ["5", "5", "3", "1"]);
});

test("a question is answered by direct reply-to", TIMEOUT, async () => {
  const queue = await queueOf();
  const inbox = new Inbox();
  await publisher.consume("amq.rabbitmq.reply-to", (message) => inbox.put(message), {
    noAck: true,
  });
  await consumer.consume(queue, (message) => {
    consumer.publish("", message.properties.replyTo, Buffer.from(`re: ${message.content}`), {
      correlationId: message.properties.correlationId,
    });
    consumer.ack(message);
  });
  publisher.sendToQueue(queue, Buffer.from("how much?"), {
    replyTo: "amq.rabbitmq.reply-to",
    correlationId: "1",
  });
  const [answer] = await inbox.take(1);
  assert.equal(answer.content.toString(), "re: how much?");
  assert.equal(answer.properties.correlationId, "1");
});

test("purge and delete count", TIMEOUT, async () => {
  const queue = await queueOf();
  await send(queue, "a", "b");
  assert.deepEqual(await consumer.purgeQueue(queue), { messageCount: 2 });
  await send(queue, "c");
  await assert.rejects(consumer.deleteQueue(queue, { ifEmpty: true }), { code: 406 });
  assert.deepEqual(await publisher.deleteQueue(queue), { messageCount: 1 });
});
