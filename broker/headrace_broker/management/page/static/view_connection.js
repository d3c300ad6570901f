// One connection: why it is slow, and what is on it.

import { change, get, path, Refused } from "./api.js";
import { confirm, notice } from "./dialog.js";
import { h, setText } from "./dom.js";
import { count, bytes } from "./format.js";
import { clientName, facts, section, tile } from "./part.js";
import { Table } from "./table.js";
import { CHANNEL_COLUMNS } from "./view_channels.js";
import { Why } from "./why.js";

export class ConnectionView {
  constructor(app, id) {
    this.app = app;
    this.id = id;
    this.title = "Connection";
    this.query = { view: "connection", name: id };
    this.name = h("p", { class: "name" }, id);
    this.gone = h("p", { class: "notice", role: "status" });
    this.tiles = { state: tile("State"), owed: tile("Owed"), held: tile("Held") };
    this.why = new Why();
    this.facts = h("div", {});
    this.channels = new Table("Channels of the connection", CHANNEL_COLUMNS, { sort: ["name", false], empty: "It has no channel." });
    this.close_ = h("button", { type: "button", class: "danger", onclick: () => this.ask() }, "Close connection");
    this.element = h("div", { class: "stack" }, this.name, this.gone,
      h("dl", { class: "tiles" }, Object.values(this.tiles).map(({ element }) => element)),
      section("Why is this connection slow?", this.why.element),
      section("Channels", this.channels.element),
      section("Facts", this.facts, h("div", { class: "buttons" }, this.close_)));
    this.load();
  }

  /** What does not change each second. */
  async load() {
    try {
      const row = await get(path("connections", this.id));
      const channels = await get(path("connections", this.id, "channels"));
      this.facts.replaceChildren(facts(connectionFacts(row)));
      this.channels.update(channels.map((channel) => [channel.id, channel]));
    } catch (refusal) {
      if (!(refusal instanceof Refused)) throw refusal;
      setText(this.gone, refusal.message);
    }
  }

  update(values) {
    const row = values.get("connection");
    setText(this.gone, values.get("gone") ?? "");
    if (row === undefined) return;
    setText(this.name, `${clientName(row)} · ${row.name}`);
    const tone = { running: "good", blocked: "bad" }[row.state] ?? "warn";
    this.tiles.state.update(row.state, `on ${row.node}, user ${row.user}`, tone);
    this.tiles.owed.update(count(row.owed_messages), `${bytes(row.owed_bytes)} caused and not done`);
    this.tiles.held.update(bytes(row.buffered_bytes), `${count(row.buffered_messages)} buffered publishes`);
    this.why.update(values.get("why"));
  }

  ask() {
    confirm({
      title: "Close this connection?",
      text: `${this.name.textContent} is told that an administrator closed it. Clients usually come back at once.`,
      action: "Close connection",
      act: async () => {
        await change("DELETE", path("connections", this.id), undefined, { "X-Reason": "closed at the web page" });
        notice("The connection was closed.");
        location.hash = "#/connections";
      },
    });
  }
}

function connectionFacts(row) {
  const product = [row.client_properties.product, row.client_properties.version].filter((each) => typeof each === "string").join(" ");
  return [
    ["User", row.user],
    ["Vhost", row.vhost],
    ["Node", row.node],
    ["Client", product || "–"],
    ["Protocol", row.protocol],
    ["TLS", row.ssl ? `${row.ssl_protocol}, ${row.ssl_cipher}` : "none"],
    ["Since", new Date(row.connected_at).toLocaleString()],
    ["Heartbeat", `${count(row.timeout)} s`],
    ["Frame", bytes(row.frame_max)],
    ["Id", row.id],
  ];
}
