// The page of all runs: a card for each, with its progress and its best configs.

import { $, clock, h, hparams, number, plural } from "./dom.js";
import { now, on, section } from "./stream.js";

function badge(run) {
  if (run.problem) return ["unreadable", "warn"];
  if (run.reading) return ["reading", ""];
  return run.live ? ["live", "on"] : run.outcome ? ["ended", ""] : ["not running", "warn"];
}

function card(run) {
  const [text, kind] = badge(run);
  const title = h("h2", {}, h("a", { href: `/run/${encodeURIComponent(run.run)}` }, run.run), h("span", { class: `badge ${kind}` }, text));
  if (run.problem) return h("article", { class: "card" }, title, h("p", { class: "problem" }, run.problem));
  if (run.reading) return h("article", { class: "card" }, title, h("p", { class: "soft" }, "The record is being read."));
  const [done, total] = run.units;
  const bar = h("i");
  bar.style.width = `${total ? (100 * done) / total : 0}%`;
  const configs = Object.entries(run.configs).map(([status, count]) => `${count} ${status}`).join(", ") || "no configs yet";
  const time = run.began ? clock((run.live ? now() : run.until) - run.began) : null;
  const facts = [configs, `${done}/${plural(total, "unit")}`, time && (run.live ? `${time} gone` : run.outcome ? `took ${time}` : `${time} so far`), run.live && run.left !== null ? `about ${clock(run.left)} to go` : null, run.live ? plural(run.nodes, "node") : null];
  const metric = run.objective[0];
  const rows = run.best.map((row, index) => h("tr", {}, h("td", { class: "n narrow" }, String(index + 1)), h("td", {}, h("a", { href: `/run/${encodeURIComponent(run.run)}#config=${encodeURIComponent(row.config)}` }, row.config)), h("td", { class: "n" }, number(row.best)), h("td", { class: "cut", "data-tip": hparams(row.hparams) }, hparams(row.hparams))));
  return h("article", { class: "card" }, title,
    h("div", { class: "progress", role: "progressbar", "aria-label": "Units done", "aria-valuemin": 0, "aria-valuemax": total, "aria-valuenow": done }, bar),
    h("p", { class: "soft" }, facts.filter(Boolean).join(" · ")),
    rows.length ? h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "#"), h("th", {}, "config"), h("th", { class: "n" }, metric), h("th", {}, "hyper-parameters"))), h("tbody", {}, rows)) : h("p", { class: "soft" }, `No config has a value of ${metric} yet.`));
}

const cards = new Map();

function draw() {
  const text = $("find").value.trim().toLowerCase();
  const all = Object.values(section("runs"));
  const shown = all.filter((run) => run.run.toLowerCase().includes(text) && (!$("only-live").checked || run.live));
  shown.sort((a, b) => Boolean(b.live) - Boolean(a.live) || (b.until || b.began || 0) - (a.until || a.began || 0) || (a.run < b.run ? -1 : 1));
  const wanted = shown.map((run) => {
    const shape = JSON.stringify(run) + (run.live ? Math.floor(now()) : "");
    const known = cards.get(run.run);
    if (known?.shape === shape) return known.element;
    const element = card(run);
    const focused = known?.element.contains(document.activeElement);
    cards.set(run.run, { shape, element });
    if (focused) queueMicrotask(() => element.querySelector("a").focus());
    return element;
  });
  const place = $("runs");
  if (wanted.length !== place.children.length || wanted.some((element, index) => place.children[index] !== element)) place.replaceChildren(...wanted);
  const { problem, read } = section("all");
  const none = $("no-runs");
  none.hidden = shown.length > 0 && !problem;
  none.textContent = problem ? `The runs cannot be listed: ${problem}.` : all.length ? "No run fits." : read ? "There is no run here yet. Each run that starts appears here by itself." : "Looking for runs.";
  $("count").textContent = all.length ? `${plural(shown.length, "run")}${shown.length < all.length ? ` of ${all.length}` : ""}` : "";
}

export function start() {
  on("runs all", draw);
  $("find").addEventListener("input", draw);
  $("only-live").addEventListener("change", draw);
  draw();
}
