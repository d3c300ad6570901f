// A form that changes the watermarks of one queue.

import { change, get, path, Refused } from "./api.js";
import { notice, tell } from "./dialog.js";
import { h } from "./dom.js";
import { bytes } from "./format.js";
import { declared, MARKS, parseCount, parseBytes, plan } from "./watermark.js";

const FIELDS = {
  "high-watermark-bytes": { title: "High, bytes", help: "64 MiB; 0 for none", parse: parseBytes, marks: "high_bytes", text: bytes },
  "low-watermark-bytes": { title: "Low, bytes", help: "¾ of high", parse: parseBytes, marks: "low_bytes", text: bytes },
  "high-watermark": { title: "High, messages", help: "none", parse: parseCount, marks: "high", text: String },
  "low-watermark": { title: "Low, messages", help: "¾ of high", parse: parseCount, marks: "low", text: String },
};

export class WatermarkForm {
  /** @param queue as GET /api/queues/V/Q gives it; `done` is called after a change. */
  constructor(session, queue, done) {
    this.queue = queue;
    this.done = done;
    this.inputs = {};
    const fields = MARKS.map((mark) => this.field(mark, FIELDS[mark]));
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.button = h("button", { class: "primary", type: "submit" }, "Set watermarks");
    const refusal = session.makes_policies ? "" : "Watermarks are changed by users with the tag policymaker or administrator.";
    const own = declared(queue);
    this.element = h("form", { class: "watermarks", novalidate: true },
      h("fieldset", { disabled: refusal !== "" }, h("div", { class: "fields" }, fields), this.problem, this.button),
      refusal && h("p", { class: "notice" }, refusal),
      own.length > 0 && h("p", { class: "notice" }, `The queue was declared with ${own.join(", ")}: of that and a policy the smaller counts.`),
      h("p", { class: "hint" }, this.explain()));
    this.element.addEventListener("submit", (event) => this.submit(event));
  }

  field(mark, { title, help, marks, text }) {
    const value = this.queue.effective_policy_definition?.[mark];
    const input = h("input", { name: mark, value: value === undefined ? "" : text(value), placeholder: help, autocomplete: "off", inputmode: "text" });
    this.inputs[mark] = input;
    const now = this.queue.watermarks?.[marks];
    return h("label", {}, title, input, h("small", {}, now ? `now ${text(now)}` : "now none"));
  }

  explain() {
    const { policy } = this.queue;
    const before = policy ? `Policy “${policy}” applies to this queue now; ` : "No policy applies to this queue now; ";
    return `${before}this form makes one that fits only this queue and keeps what else is said there. Empty fields leave a mark to its default.`;
  }

  /** The marks that were given, or null where one is no number. */
  given() {
    const marks = {};
    for (const mark of MARKS) {
      const value = FIELDS[mark].parse(this.inputs[mark].value);
      const wrong = Number.isNaN(value);
      this.inputs[mark].setAttribute("aria-invalid", String(wrong));
      if (wrong) {
        this.problem.textContent = `${FIELDS[mark].title}: must be a number, such as ${mark.endsWith("bytes") ? "64 MiB" : "1000"}`;
        this.problem.hidden = false;
        this.inputs[mark].focus();
        return null;
      }
      marks[mark] = value;
    }
    return marks;
  }

  async submit(event) {
    event.preventDefault();
    this.problem.hidden = true;
    const marks = this.given();
    if (marks === null) return;
    this.button.disabled = true;
    try {
      const { vhost } = this.queue;
      const found = plan(this.queue, await get(path("policies", vhost)), marks);
      await change("PUT", path("policies", vhost, found.name), found.body);
      notice(`Policy “${found.name}” was ${found.created ? "made" : "changed"}.`);
      await this.done();
    } catch (refusal) {
      if (!(refusal instanceof Refused)) throw refusal;
      tell(this.problem, refusal);
    } finally {
      this.button.disabled = false;
    }
  }
}
