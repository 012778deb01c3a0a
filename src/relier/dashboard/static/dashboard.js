// Times in the viewer's zone, the theme, keyboard search, confirmations, and live pages.
// A live page is read again as a whole: events only say when. Without events it is read every 15 seconds.
"use strict";
(() => {
  const body = document.body;
  const base = body.dataset.base || "";
  const QUIET_MS = 1000;
  const POLL_MS = 15000;

  // --- times --------------------------------------------------------------------------------------------------

  const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const hour = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

  function localTimes(root) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue; // a text of somebody that only looks like a time
      const isPlain = time.textContent.endsWith(" UTC");
      time.title = full.format(at);
      if (isPlain) time.textContent = at.toDateString() === new Date().toDateString() ? hour.format(at) : full.format(at);
    }
  }

  // Fields for times hold UTC as the server writes them. They show the viewer's zone, and are sent in UTC.
  function localFields(root) {
    for (const one of root.querySelectorAll("input.utc:not([data-local])")) {
      one.dataset.local = "";
      if (!one.value) continue;
      const at = new Date(`${one.value}Z`);
      at.setMinutes(at.getMinutes() - at.getTimezoneOffset());
      one.value = at.toISOString().slice(0, 19);
    }
  }

  document.addEventListener("formdata", (event) => {
    for (const one of event.target.querySelectorAll("input.utc")) {
      if (one.value) event.formData.set(one.name, `${new Date(one.value).toISOString().slice(0, 19)}Z`);
      else event.formData.delete(one.name);
    }
  });

  // --- theme and keyboard -------------------------------------------------------------------------------------

  const theme = document.getElementById("theme");
  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  const nameTheme = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
  theme.addEventListener("click", () => {
    const next = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try { localStorage.setItem("relier-theme", next); } catch { /* it lasts as long as the page */ }
    nameTheme();
  });
  nameTheme();

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const search = document.getElementById("search");
      if (search) { event.preventDefault(); search.focus(); search.select(); }
    } else if (event.key === "Escape" && typing) typing.blur();
  });

  // --- forms --------------------------------------------------------------------------------------------------

  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.ask;
    if (question && !window.confirm(question)) event.preventDefault();
  });

  document.addEventListener("change", (event) => {
    if (!event.target.classList.contains("pick-all")) return;
    for (const box of event.target.closest("table").querySelectorAll(".pick")) box.checked = event.target.checked;
  });

  // --- live ---------------------------------------------------------------------------------------------------

  const live = document.getElementById("live");
  let due = null;
  let reading = false;

  function say(state, words) {
    if (!live || live.dataset.state === state) return;
    live.dataset.state = state;
    live.textContent = words;
  }

  // What somebody is in the middle of must not be replaced under their hands.
  function isBusy() {
    const shown = document.getElementById("refreshed");
    const active = document.activeElement;
    return shown.querySelector(".pick:checked, details[data-touched][open] textarea") !== null
      || (shown.contains(active) && active.matches("input, textarea, select"));
  }

  // A search by the beginning of an id goes on by itself until it has found something.
  async function searchFurther() {
    for (let link = document.querySelector("a[data-follow]"); link; link = document.querySelector("a[data-follow]")) {
      const answer = await fetch(link.href, { redirect: "error" }).catch(() => null);
      if (!answer || !answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("refreshed");
      if (!fresh || isBusy()) return;
      history.replaceState(null, "", link.href);
      replace(fresh);
    }
  }

  async function refresh() {
    due = null;
    if (reading || document.hidden) return;
    if (isBusy()) { schedule(); return; }
    reading = true;
    try {
      const answer = await fetch(location.href, { headers: { "X-Requested-With": "relier" }, redirect: "error" });
      if (!answer.ok) throw new Error(String(answer.status));
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("refreshed");
      if (fresh && !isBusy()) replace(fresh);
    } catch { say("off", "not live"); } finally { reading = false; }
  }

  function replace(fresh) {
    const shown = document.getElementById("refreshed");
    const open = new Map([...shown.querySelectorAll("details[id]")].map((one) => [one.id, one.open]));
    const scrolled = [...shown.querySelectorAll(".wide")].map((one) => one.scrollLeft);
    localTimes(fresh);
    localFields(fresh);
    for (const one of fresh.querySelectorAll("details[id]")) if (open.has(one.id)) one.open = open.get(one.id);
    shown.replaceChildren(...fresh.childNodes);
    [...shown.querySelectorAll(".wide")].forEach((one, n) => { one.scrollLeft = scrolled[n] || 0; });
    body.dataset.refreshed = String(Number(body.dataset.refreshed || 0) + 1);
  }

  function schedule() {
    if (due === null) due = setTimeout(refresh, QUIET_MS);
  }

  function follow() {
    const source = new EventSource(`${base}/events?topics=${encodeURIComponent(body.dataset.topics)}`);
    source.addEventListener("open", () => { say("on", "live"); schedule(); });
    source.addEventListener("change", schedule);
    source.addEventListener("missed", schedule);
    source.addEventListener("error", () => say("off", "not live"));
    window.addEventListener("pagehide", () => source.close());
  }

  document.addEventListener("toggle", (event) => { event.target.dataset.touched = ""; }, true);
  localTimes(document);
  localFields(document);
  searchFurther();
  const here = document.querySelector(".menu [aria-current]");
  if (here) here.parentElement.scrollLeft = here.offsetLeft - 60; // on a phone the menu is wider than the screen
  if (live && body.dataset.topics) {
    follow();
    setInterval(schedule, POLL_MS);
    document.addEventListener("visibilitychange", () => { if (!document.hidden) schedule(); });
  }
})();
