// Runs before anything is drawn, so that a chosen theme does not flash.
(() => {
  const chosen = localStorage.getItem("headrace-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
