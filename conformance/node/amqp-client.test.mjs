import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";

import { AMQPClient, AMQPSession } from "@cloudamqp/amqp-client";

import { CONSUME_URL, PUBLISH_URL, Inbox, fresh } from "./broker.mjs";

const TIMEOUT = { timeout: 30_000 };

let publishing, consuming, publisher, consumer;

before(async () => {
  publishing = await new AMQPClient(PUBLISH_URL).connect();
  consuming = await new AMQPClient(CONSUME_URL).connect();
});

after(async () => {
  await publishing.close();
  await consuming.close();
});

beforeEach(async () => {
  publisher = await publishing.channel();
  await publisher.confirmSelect();
  consumer = await consuming.channel();
});

afterEach(async () => {
  for (const channel of [publisher, consumer]) if (!channel.closed) await channel.close();
});

const queueOf = async (arguments_ = {}) =>
  (await publisher.queueDeclare(fresh("q"), { durable: true }, arguments_)).name;

test("messages arrive in order with headers and properties", TIMEOUT, async () => {
  const queue = await queueOf();
  const inbox = new Inbox();
  await consumer.basicConsume(queue, { noAck: false }, (message) => inbox.put(message));
  const headers = { text: "é", number: 7, large: 2 ** 40, yes: false, list: [1, "two"], in: { x: 1 } };
  const timestamp = new Date(1_700_000_000_000);
  const properties = { contentType: "text/plain", headers, deliveryMode: 2, messageId: "id", timestamp };
  const bodies = Array.from({ length: 200 }, (_, number) => `message ${number}`);
  await Promise.all(bodies.map((body) => publisher.basicPublish("", queue, body, properties)));
  const messages = await inbox.take(bodies.length);
  assert.deepEqual(messages.map((message) => message.bodyString()), bodies);
  assert.deepEqual(messages[0].properties.headers, headers);
  assert.deepEqual(messages[0].properties.timestamp, timestamp);
  assert.equal(messages[0].properties.messageId, "id");
  await messages.at(-1).ack(true);
  assert.equal((await consumer.queueDeclare(queue, { passive: true })).messageCount, 0);
});

test("publishes get the numbers that are confirmed", TIMEOUT, async () => {
  const queue = await queueOf();
  const tags = await Promise.all(["a", "b", "c"].map((body) => publisher.basicPublish("", queue, body)));
  assert.deepEqual(tags, [1, 2, 3]);
});

test("get, nack with requeue, and empty", TIMEOUT, async () => {
  const queue = await queueOf();
  await publisher.basicPublish("", queue, "a");
  const message = await consumer.basicGet(queue, { noAck: false });
  await message.nack(true);
  const again = await consumer.basicGet(queue, { noAck: false });
  assert.deepEqual([again.bodyString(), again.redelivered], ["a", true]);
  await again.ack();
  assert.equal(await consumer.basicGet(queue), null);
});

test("a message that is refused is dead-lettered", TIMEOUT, async () => {
  const dead = await queueOf();
  const queue = await queueOf({ "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead });
  const inbox = new Inbox();
  await consumer.basicConsume(dead, { noAck: true }, (message) => inbox.put(message));
  await publisher.basicPublish("", queue, "bad");
  await (await consumer.basicGet(queue, { noAck: false })).reject(false);
  const [message] = await inbox.take(1);
  const [death] = message.properties.headers["x-death"];
  assert.deepEqual([death.queue, death.reason, Number(death.count)], [queue, "rejected", 1]);
});

test("prefetch bounds what is out", TIMEOUT, async () => {
  const queue = await queueOf();
  const inbox = new Inbox();
  await consumer.prefetch(2);
  for (const body of ["0", "1", "2"]) await publisher.basicPublish("", queue, body);
  await consumer.basicConsume(queue, { noAck: false }, (message) => inbox.put(message));
  const [first] = await inbox.take(2);
  assert.equal((await consumer.queueDeclare(queue, { passive: true })).messageCount, 1);
  await first.ack();
  assert.equal((await inbox.take(1))[0].bodyString(), "2");
});

test("a full queue refuses publishes", TIMEOUT, async () => {
  const queue = await queueOf({ "x-max-length": 1, "x-overflow": "reject-publish" });
  await publisher.basicPublish("", queue, "fits");
  await assert.rejects(async () => {
    for (let number = 0; number < 5; number += 1) await publisher.basicPublish("", queue, "more");
  });
});

test("exchanges route, also to each other", TIMEOUT, async () => {
  const [topic, headers] = [fresh("topic"), fresh("headers")];
  await publisher.exchangeDeclare(topic, "topic");
  await publisher.exchangeDeclare(headers, "headers");
  await publisher.exchangeBind(headers, topic, "a.#");
  const queue = await queueOf();
  await publisher.queueBind(queue, headers, "", { "x-match": "any", colour: "red" });
  await publisher.basicPublish(topic, "a.b", "in", { headers: { colour: "red" } });
  await publisher.basicPublish(topic, "a.b", "out", { headers: { colour: "blue" } });
  await publisher.basicPublish(topic, "b.b", "out", { headers: { colour: "red" } });
  assert.equal((await consumer.basicGet(queue)).bodyString(), "in");
  assert.equal(await consumer.basicGet(queue), null);
});

test("a mandatory message without a queue comes back", TIMEOUT, async () => {
  const inbox = new Inbox();
  publisher.onReturn = (message) => inbox.put(message);
  await publisher.basicPublish("", fresh("nowhere"), "back", {}, true);
  const [message] = await inbox.take(1);
  assert.deepEqual([message.replyCode, message.bodyString()], [312, "back"]);
});

test("a cancelled consumer ends, and one whose queue is deleted fails", TIMEOUT, async () => {
  const queue = await queueOf();
  const ended = await consumer.basicConsume(queue, {}, () => {});
  await ended.cancel();
  assert.equal((await consumer.queueDeclare(queue, { passive: true })).consumerCount, 0);
  const failing = await consumer.basicConsume(queue, {}, () => {});
  const waited = assert.rejects(failing.wait());
  await publisher.queueDelete(queue);
  await waited;
});

test("a transaction is seen when it is committed", TIMEOUT, async () => {
  const queue = await queueOf();
  const channel = await publishing.channel();
  await channel.txSelect();
  await channel.basicPublish("", queue, "kept");
  assert.equal((await channel.queueDeclare(queue, { passive: true })).messageCount, 0);
  await channel.txCommit();
  assert.equal((await consumer.queueDeclare(queue, { passive: true })).messageCount, 1);
  await channel.basicPublish("", queue, "lost");
  await channel.txRollback();
  assert.equal((await consumer.queueDeclare(queue, { passive: true })).messageCount, 1);
  await channel.close();
});

test("errors close the channel only", TIMEOUT, async () => {
  await assert.rejects(consumer.queueDeclare(fresh("missing"), { passive: true }), /NOT_FOUND/);
  assert.equal(consumer.closed, true);
  consumer = await consuming.channel();
  assert.equal(typeof (await consumer.queueDeclare("", { exclusive: true })).name, "string");
});

test("a session subscribes, and asks by direct reply-to", TIMEOUT, async () => {
  const session = await AMQPSession.connect(PUBLISH_URL);
  const other = await AMQPSession.connect(CONSUME_URL);
  const queue = await session.queue(fresh("session"));
  await queue.publish("hello");
  const subscription = await (await other.queue(queue.name)).subscribe();
  for await (const message of subscription) {
    assert.equal(message.bodyString(), "hello");
    break;
  }
  const questions = fresh("questions");
  await other.rpcServer(questions, async (message) => `re: ${message.bodyString()}`);
  const answer = await session.rpcCall(questions, "how much?", { timeout: 10_000 });
  assert.equal(answer.bodyString(), "re: how much?");
  await session.stop();
  await other.stop();
});
