// Applies the theme that was chosen before, as early as possible, so that the page does not flash.
"use strict";
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("relier-theme"); } catch { /* storage may be off */ }
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
