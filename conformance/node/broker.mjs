// What the tests of all clients share: where the broker is, names, and waiting.
export const PUBLISH_URL = process.env.PUBLISH_URL;
export const CONSUME_URL = process.env.CONSUME_URL; // another node of the cluster, if there is one

let made = 0;

// A name that no other test uses.
export function fresh(what) {
  made += 1;
  return `node-${process.pid}-${made}-${what}`;
}

// Collects what arrives; `take(count)` waits for so many and gives them back in order.
export class Inbox {
  #arrived = [];
  #waiting = null;

  put(message) {
    this.#arrived.push(message);
    this.#settle();
  }

  take(count) {
    return new Promise((resolve) => {
      this.#waiting = { count, resolve };
      this.#settle();
    });
  }

  get size() {
    return this.#arrived.length;
  }

  #settle() {
    if (this.#waiting === null || this.#arrived.length < this.#waiting.count) return;
    const { count, resolve } = this.#waiting;
    this.#waiting = null;
    resolve(this.#arrived.splice(0, count));
  }
}
