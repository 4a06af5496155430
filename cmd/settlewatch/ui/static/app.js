// Everything works without this file. It keeps an open page true, draws the charts
// from the tables of the page, and keeps a form from being sent twice.
"use strict";
(() => {
  const $ = (s, of = document) => of.querySelector(s);
  const all = (s, of = document) => [...of.querySelectorAll(s)];

  // Charts. What is drawn is near enough for a picture; the tables have it exactly.
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let drawn = [];

  function axes(width) {
    const stroke = colour("--soft"), grid = { stroke: colour("--line"), width: 1 };
    const font = "12px system-ui, sans-serif";
    return [
      { stroke, font, grid: { show: false }, ticks: { show: false }, space: 80, values: (_, v) => v.map((n) => new Date(n * 1000).toISOString().slice(5, 10)), incrs: [86400, 2 * 86400, 3 * 86400, 7 * 86400, 14 * 86400, 30 * 86400] },
      { stroke, font, grid, ticks: { show: false }, size: 64, values: (_, v) => v.map((n) => n === null ? "" : String(+n.toPrecision(6))) },
    ];
  }

  function days(box) {
    const rows = all("#days-table tbody tr").reverse();
    const at = rows.map((r) => Date.parse(r.cells[0].textContent + "T00:00:00Z") / 1000);
    const column = (i) => rows.map((r) => Number(r.cells[i].textContent));
    const settled = column(1), open = column(2), failed = column(3);
    const two = settled.map((v, i) => v + open[i]), three = two.map((v, i) => v + failed[i]);
    const text = (i) => (_, __, ___, n) => n == null ? "–" : rows[n].cells[i].textContent;
    const bars = uPlot.paths.bars({ size: [0.72, 40], align: 0, radius: 0 });
    const series = (label, name, i) => ({ label, paths: bars, fill: colour(name), stroke: colour(name), width: 0, points: { show: false }, value: text(i) });
    // The tallest first, so that each stands before the one it is a part of.
    return [{ series: [{ label: "Day", value: (_, v) => v == null ? "–" : new Date(v * 1000).toISOString().slice(0, 10) }, series("failed", "--bad", 3), series("open", "--due", 2), series("settled", "--good", 1)] }, [at, three, two, settled]];
  }

  function amounts() {
    const points = all("#points data").map((d) => {
      const [units, state] = d.textContent.split(" ");
      return { at: Date.parse(d.value) / 1000, units, n: Number(units), state };
    });
    const of = (state) => points.map((p) => p.state === state ? p.n : null);
    const dots = (label, name) => ({ label, stroke: colour(name), paths: () => null, points: { show: true, size: 7, fill: colour(name) }, value: (_, __, ___, n) => n == null || points[n].state !== label ? "–" : points[n].units });
    return [{ series: [{ label: "Time", value: (_, v) => v == null ? "–" : new Date(v * 1000).toISOString().slice(0, 16).replace("T", " ") }, dots("settled", "--good"), dots("open", "--due"), dots("failed", "--bad")] },
      [points.map((p) => p.at), of("settled"), of("open"), of("failed")]];
  }

  function draw() {
    drawn.forEach((u) => u.destroy());
    drawn = [];
    if (typeof uPlot === "undefined") return;
    for (const box of all("[data-chart]")) {
      const width = box.parentElement.clientWidth - 2 * parseFloat(getComputedStyle(box.parentElement).paddingLeft);
      const [of, data] = box.dataset.chart === "days" ? days(box) : amounts();
      if (!data[0].length) continue;
      const zero = { range: (_, __, max) => [0, max > 0 ? max * 1.08 : 1] };
      // A bar of a day has half of it on either side.
      const whole = box.dataset.chart === "days" ? { range: (_, min, max) => [min - 43200, max + 43200] } : {};
      drawn.push(new uPlot({ width, height: 200, axes: axes(width), scales: { x: whole, y: zero }, tzDate: (s) => uPlot.tzDate(new Date(s * 1e3), "Etc/UTC"), cursor: { y: false, drag: { setScale: false } }, ...of }, data, box));
    }
  }

  function meters() {
    for (const m of all("meter[data-of]")) {
      const of = Number(m.dataset.of), used = of > 0 ? 1 - Number(m.dataset.left) / of : 1;
      m.low = 0.75; m.high = 0.95; m.optimum = 0;
      m.value = Math.min(1, Math.max(0, used));
    }
  }

  // A form is sent once. What was sent twice all the same is told apart by the server.
  document.addEventListener("submit", (e) => {
    const form = e.target;
    if (form.method !== "post") return;
    if (form.dataset.sent) { e.preventDefault(); return; }
    form.dataset.sent = "1";
    all("button", form).forEach((b) => b.setAttribute("aria-disabled", "true"));
  });
  window.addEventListener("pageshow", (e) => {
    if (!e.persisted) return;
    all("form").forEach((f) => { delete f.dataset.sent; all("button", f).forEach((b) => b.removeAttribute("aria-disabled")); });
  });

  // Keeping the page true.
  let shown = Date.now();
  let mark = document.body.dataset.mark, asked = null, lost = false, title = document.title;
  const live = $("#live");
  const busy = () => {
    const at = document.activeElement;
    const typing = at && (at.closest("#standing") || at.closest("main") && /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName));
    const filled = all("main input[name=note], main input[name=reason], main textarea").some((i) => i.value !== i.defaultValue) ||
      all("main input[type=checkbox], main input[type=radio]").some((i) => i.checked !== i.defaultChecked);
    return typing || filled || String(getSelection());
  };

  function tell(text, link, label) {
    const p = document.createElement("p");
    p.textContent = text + " ";
    if (link) {
      const a = document.createElement("a");
      a.href = link;
      a.textContent = label;
      p.append(a);
    }
    live.replaceChildren(p);
    live.hidden = false;
  }

  const changed = () => tell("Something has changed since this page was opened.", location.href, "Show it as it is now");

  function count(n) {
    const b = $("#pending");
    if (!b) return;
    $("#pending-count").textContent = n.toLocaleString("en");
    b.classList.toggle("none", n === 0);
    document.title = (n ? "(" + n + ") " : "") + title;
  }

  async function refresh(next) {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) { changed(); mark = next; return; }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = $("main", page);
    if (!main || busy()) return;
    const open = all("main details").map((d) => d.open), at = document.activeElement?.id;
    $("main").replaceWith(main);
    $("#standing").replaceWith($("#standing", page));
    all("main details").forEach((d, i) => { if (open[i]) d.open = true; });
    if (at) document.getElementById(at)?.focus({ preventScroll: true });
    mark = page.body.dataset.mark || next;
    shown = Date.now();
    meters();
    draw();
  }

  async function look() {
    if (document.hidden || !mark) return;
    let s;
    try {
      const answer = await fetch("/state", { headers: { Accept: "application/json" } });
      if (answer.status === 401) { tell("You are logged out.", location.href, "Log in again"); mark = ""; return; }
      s = await answer.json();
    } catch {
      if (!lost) tell("settlewatch ui does not answer any more. What is shown may be out of date.");
      lost = true;
      return;
    }
    if (lost) { lost = false; live.hidden = true; }
    count(s.pending);
    if (asked !== null && s.asked > asked && s.asked_for) tell("Somebody followed a link to a review.", "/review/" + encodeURIComponent(s.asked_for), "Look at review " + s.asked_for);
    asked = s.asked;
    if (s.mark === mark) {
      // What a page says of the clock, such as how long ago, is true for a while only.
      // Nobody who reads or moves about in it is disturbed for that.
      const still = $("main").contains(document.activeElement) || all("main .scroll, main pre").some((e) => e.scrollTop || e.scrollLeft);
      if (Date.now() - shown > 60000 && !still && !busy()) await refresh(mark);
      return;
    }
    if (busy()) { changed(); return; }
    await refresh(s.mark);
  }

  // What a form has done is said once, not each time the page is opened again.
  const here = new URL(location);
  if (here.searchParams.has("did")) {
    here.searchParams.delete("did");
    history.replaceState(null, "", here);
  }

  document.addEventListener("DOMContentLoaded", () => {
    meters();
    draw();
    if (!mark) return;
    look();
    setInterval(look, 2000);
    document.addEventListener("visibilitychange", look);
  });
  let wait;
  window.addEventListener("resize", () => { clearTimeout(wait); wait = setTimeout(draw, 150); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
