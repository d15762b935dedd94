// What several parts of a run's page share: the ranking, colours, and which configs are selected.

import { $ } from "./dom.js";
import { data, on, section, touch } from "./stream.js";

const COLOURED = 8;
export const selected = new Set();
export const summary = () => section("run").summary ?? null;
export const body = document.body.dataset;
export const run = body.run;
export const base = `/run/${encodeURIComponent(run)}`;

// The configs as a person sees them: without their trainings on folds, or with several seeds.
export const configs = () => Object.fromEntries(Object.entries(section("configs")).filter(([, row]) => !row.memberOf));

let order = [];
let places = new Map();

// Compares configs by the order of their creation, which is that of their ids: c10000 comes after c9999.
export const created = (a, b) => a.length - b.length || (a < b ? -1 : 1);

on("configs run", () => {
  const sign = summary()?.objective?.[1] === "max" ? -1 : 1;
  order = Object.entries(configs()).filter(([, row]) => row.best !== null)
    .sort(([a, x], [b, y]) => Boolean(x.partial) - Boolean(y.partial) || sign * (x.best - y.best) || created(a, b)).map(([name]) => name);
  places = new Map(order.map((name, index) => [name, index + 1]));
});

export const ranking = () => order;
export const place = (config) => places.get(config) ?? null;

// The class of a config's colour: the selected ones have colours, else the best; k0 is grey.
export function colour(config) {
  if (selected.size) {
    const index = [...selected].indexOf(config);
    return index < 0 ? "k0" : `k${(index % COLOURED) + 1}`;
  }
  const rank = places.get(config) ?? Infinity;
  return rank <= COLOURED ? `k${rank}` : "k0";
}

export function toggle(config) {
  if (!selected.delete(config)) selected.add(config);
  touch("selection");
}

export function unselect() { selected.clear(); touch("selection"); }

// The config under the mouse or the focus, which all charts bring out.
let pointed = null;
export const focused = () => pointed;
export function focus(config) {
  if (config === pointed) return;
  pointed = config;
  touch("focus");
}

export function colours() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(`--${name}`).trim();
  const names = ["ground", "panel", "ink", "soft", "rule", "fault", "quarantined", "event", "k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8"];
  return Object.fromEntries(names.map((name) => [name, value(name)]));
}

export const live = () => Boolean(summary()?.live) && data.run?.connection?.state !== "lost";

const SPAN = ["node", "config", "epoch", "partition", "phase", "begin", "end", "seconds", "hop", "fetch", "save", "strategy", "left"];

// The units that were done: in `run_page.py` a list of these values.
export const spans = () => Object.values(section("spans")).map((values) => Object.fromEntries(SPAN.map((name, index) => [name, values[index]])));

// Draw soon what is in sight, and now and then what is not: people search the page, and readers read it aloud.
export function lazily(id, sections, draw, pause = 0, away = 4000) {
  if (body.report) { on(sections, draw); return; }
  let [seen, stale, due] = [false, true, 0];
  const go = () => { clearTimeout(due); due = 0; if (stale) { stale = false; draw(); } };
  new IntersectionObserver(([entry]) => { seen = entry.isIntersecting; if (seen) go(); }, { rootMargin: "300px" }).observe($(id));
  on(sections, () => { stale = true; if (!due && (seen || away)) due = setTimeout(go, seen ? pause : away); });
}
