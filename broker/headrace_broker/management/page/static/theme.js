// Dark or light: as the system has it, unless somebody says otherwise.

const KEY = "headrace-theme";
const ORDER = ["auto", "light", "dark"];

export function theme() {
  return document.documentElement.dataset.theme ?? "auto";
}

/** Take the next theme and return its name. */
export function nextTheme() {
  const next = ORDER[(ORDER.indexOf(theme()) + 1) % ORDER.length];
  if (next === "auto") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem(KEY);
  } else {
    document.documentElement.dataset.theme = next;
    localStorage.setItem(KEY, next);
  }
  return next;
}
