// A look at waiting messages, which stay where they are.

import { get, path, Refused } from "./api.js";
import { tell } from "./dialog.js";
import { h } from "./dom.js";
import { count, duration, bytes } from "./format.js";

const PAGE = 10;
const BODY_BYTES = 4096;

export class Peek {
  constructor(vhost, name) {
    this.where = path("queues", vhost, name, "messages");
    this.list = h("ol", { class: "messages" });
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.first = h("button", { type: "button", onclick: () => this.load(0) }, "Look at messages");
    this.next = h("button", { type: "button", hidden: true, onclick: () => this.load(this.after) }, "Next");
    this.element = h("div", {}, h("div", { class: "buttons" }, this.first, this.next), this.problem, this.list);
  }

  async load(after) {
    this.problem.hidden = true;
    try {
      const found = await get(`${this.where}?limit=${PAGE}&after=${after}&truncate=${BODY_BYTES}`);
      this.after = found.next_after;
      this.next.hidden = this.after === null;
      this.list.replaceChildren(...found.messages.map(message));
      if (found.messages.length === 0) this.list.append(h("li", { class: "empty" }, "No message waits."));
      this.first.textContent = "Look again from the front";
    } catch (refusal) {
      if (!(refusal instanceof Refused)) throw refusal;
      tell(this.problem, refusal);
    }
  }
}

function message(found) {
  const told = [
    `${found.exchange || "(default exchange)"} → ${found.routing_key || "(no key)"}`,
    bytes(found.payload_bytes),
    `waits ${duration(found.age_ms)}`,
    found.priority > 0 && `priority ${found.priority}`,
    found.redelivered && `delivered ${count(found.acquired_count)} times`,
  ];
  const properties = Object.keys(found.properties).length > 0;
  const coded = found.payload_encoding === "base64" ? " (base64)" : "";
  return h("li", {},
    h("p", { class: "message-head" }, h("strong", {}, `#${found.id}`), ` ${told.filter(Boolean).join(" · ")}${coded}`),
    h("pre", { tabindex: "0" }, found.payload + (found.truncated ? " …" : "")),
    properties && h("details", {}, h("summary", {}, "Properties"), h("pre", { tabindex: "0" }, JSON.stringify(found.properties, null, 2))));
}
