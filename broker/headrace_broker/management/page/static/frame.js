// What stands around every view: the head with the way to others, alarms, and who is logged in.

import { session } from "./api.js";
import { announce, h, setAttribute, setText } from "./dom.js";
import { Keys, showHelp } from "./keys.js";
import { Live } from "./live.js";
import { NAVIGATION, parseRoute } from "./route.js";
import { nextTheme, theme } from "./theme.js";
import { VIEWS } from "./views.js";

export class Frame {
  /** @param leave logs out. */
  constructor(root, found, leave) {
    this.session = found;
    this.leave = leave;
    this.view = null;
    this.alarms = "";
    this.live = new Live({
      cluster: (values) => this.cluster(values),
      view: (values) => this.view?.update?.(values),
      state: (heard) => this.heard(heard),
      over: () => this.check(),
    });
    this.build(root);
    this.keys = new Keys({ theme: () => this.theme() });
    this.follow = () => this.open();
    addEventListener("hashchange", this.follow);
    this.open();
  }

  close() {
    removeEventListener("hashchange", this.follow);
    this.keys.close();
    this.live.stop();
    this.view?.close?.();
  }

  build(root) {
    this.links = NAVIGATION.map(({ name, title }) => h("a", { href: `#/${name}` }, title));
    this.place = h("span", { class: "place" }, `${this.session.cluster} · ${this.session.node}`);
    this.themeButton = h("button", { type: "button", class: "quiet", onclick: () => this.theme() });
    this.showTheme();
    const menu = h("button", { type: "button", class: "quiet menu", "aria-expanded": "false", "aria-controls": "navigation" }, "Menu");
    this.navigation = h("nav", { id: "navigation", "aria-label": "Views" }, this.links);
    menu.addEventListener("click", () => this.menu(menu, menu.getAttribute("aria-expanded") === "false"));
    this.navigation.addEventListener("click", () => this.menu(menu, false));
    this.lost = h("p", { class: "banner lost", role: "status", hidden: true }, "The node does not answer; figures are as they were.");
    this.alarm = h("div", { class: "banner alarm", role: "alert", hidden: true });
    this.warning = h("div", { class: "banner alarm", role: "status", hidden: true });
    this.warnings = "";
    this.main = h("main", { id: "main", tabindex: "-1" });
    root.replaceChildren(
      h("header", { class: "head" },
        h("a", { class: "brand", href: "#/overview" }, h("img", { src: "/page/static/icon.svg", alt: "", width: 22, height: 22 }), "Headrace"),
        this.place, menu, this.navigation,
        h("div", { class: "tools" },
          this.themeButton,
          h("button", { type: "button", class: "quiet help", "aria-label": "Shortcuts", title: "Shortcuts (?)", onclick: showHelp }, "?"),
          h("span", { class: "user", title: `tags: ${this.session.tags.join(", ")}` }, this.session.user),
          h("button", { type: "button", class: "quiet", onclick: this.leave }, "Log out"))),
      this.lost, this.alarm, this.warning, this.main);
  }

  menu(button, open) {
    setAttribute(button, "aria-expanded", String(open));
    this.navigation.classList.toggle("open", open);
  }

  theme() {
    nextTheme();
    this.showTheme();
  }

  showTheme() {
    const name = theme();
    setText(this.themeButton, { auto: "◐", light: "☀", dark: "☾" }[name]);
    setAttribute(this.themeButton, "aria-label", `Theme: ${name}`);
    setAttribute(this.themeButton, "title", `Theme: ${name} (t)`);
  }

  /** Show the view that the address names. */
  open() {
    const route = parseRoute(location.hash);
    const moved = this.view !== null;
    this.view?.close?.();
    this.links.forEach((link, at) => setAttribute(link, "aria-current", NAVIGATION[at].name === route.section && "page"));
    const View = VIEWS[route.name];
    this.view = new View({ session: this.session, live: this.live, watch: (query) => this.live.watch(query) }, ...route.parts);
    this.main.replaceChildren(h("h1", {}, this.view.title, this.view.subtitle && h("small", {}, this.view.subtitle)), this.view.element);
    document.title = `${this.view.title} · Headrace`;
    this.live.watch(this.view.query);
    this.view.cluster?.(this.live.cluster);
    if (moved) {
      this.main.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
  }

  cluster(values) {
    const alarms = values.get("alarms") ?? [];
    const text = alarms.map((alarm) => alarm.reason).join("; ");
    if (text !== "" || this.alarms !== "") this.showAlarms(alarms);
    this.showWarnings(values.get("warnings") ?? []);
    this.view?.cluster?.(values);
  }

  showAlarms(alarms) {
    const names = alarms.map((alarm) => `${alarm.resource} of ${alarm.node}`).join(", ");
    if (names !== this.alarms) announce(names === "" ? "No alarm is on any more" : `Publishers are blocked: ${names}`);
    this.alarms = names;
    this.alarm.hidden = names === "";
    this.alarm.replaceChildren(h("strong", {}, "Publishers are blocked in the whole cluster."),
      h("ul", {}, alarms.map((alarm) => h("li", {}, alarm.reason))));
  }

  /** Say what is wrong and blocks nobody: clocks. */
  showWarnings(warnings) {
    const text = warnings.join("; ");
    if (text === this.warnings) return;
    if (text !== "" && this.warnings === "") announce(`Warning: ${text}`);
    this.warnings = text;
    this.warning.hidden = text === "";
    this.warning.replaceChildren(h("strong", {}, "Clocks differ; nobody is blocked."), h("ul", {}, warnings.map((each) => h("li", {}, each))));
  }

  heard(heard) {
    this.lost.hidden = heard;
  }

  /** The node has sent its last word: ask whether the log-in is over. */
  async check() {
    const found = await session().catch(() => this.session);
    const known = JSON.stringify([this.session.user, this.session.tags]);
    if (found === null || JSON.stringify([found.user, found.tags]) !== known) location.reload();
  }
}
