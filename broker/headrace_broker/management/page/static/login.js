// The form that asks who somebody is.

import { logIn, Refused } from "./api.js";
import { h } from "./dom.js";

const LOCAL = new Set(["localhost", "127.0.0.1", "[::1]"]);

/** Show the form; `on` is called with the session. */
export function showLogin(root, on) {
  const user = h("input", { name: "user", autocomplete: "username", required: true, autocapitalize: "none", spellcheck: "false" });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const button = h("button", { class: "primary", type: "submit" }, "Log in");
  const open = location.protocol === "http:" && !LOCAL.has(location.hostname);
  const form = h("form", { class: "login" },
    h("h1", {}, h("img", { src: "/page/static/icon.svg", alt: "", width: 28, height: 28 }), "Headrace"),
    h("label", {}, "User", user),
    h("label", {}, "Password", password),
    open && h("p", { class: "notice" }, "This connection is not encrypted: others may read the password on its way."),
    problem, button);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    problem.hidden = true;
    try {
      on(await logIn(user.value, password.value));
    } catch (refusal) {
      if (!(refusal instanceof Refused)) throw refusal;
      problem.textContent = refusal.message;
      problem.hidden = false;
      button.disabled = false;
      password.select();
    }
  });
  document.title = "Headrace";
  root.replaceChildren(h("main", { id: "main", class: "login-page", tabindex: "-1" }, form));
  user.focus();
}
