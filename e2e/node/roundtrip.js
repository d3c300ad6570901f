// Publishes messages with confirms through one node and consumes them through another.
// usage: node roundtrip.js PUBLISH_URL CONSUME_URL QUEUE COUNT; prints one JSON line.
"use strict";

const amqp = require("amqplib");

async function main([publishUrl, consumeUrl, queue, countText]) {
  const count = Number(countText);
  const publishing = await amqp.connect(publishUrl);
  const publisher = await publishing.createConfirmChannel();
  await publisher.assertQueue(queue, { durable: true });
  const consuming = await amqp.connect(consumeUrl);
  const consumer = await consuming.createChannel();
  await consumer.prefetch(50);
  const bodies = [];
  const headers = [];
  const received = new Promise((resolve) => {
    consumer.consume(queue, (message) => {
      bodies.push(message.content.toString());
      headers.push(message.properties.headers.number);
      consumer.ack(message);
      if (bodies.length === count) resolve();
    });
  });
  for (let number = 0; number < count; number += 1) {
    publisher.sendToQueue(queue, Buffer.from(`message ${number}`), {
      persistent: true,
      contentType: "text/plain",
      headers: { number },
    });
  }
  await publisher.waitForConfirms();
  await received;
  const left = await consumer.checkQueue(queue);
  await publishing.close();
  await consuming.close();
  console.log(JSON.stringify({ bodies, headers, left: left.messageCount }));
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
