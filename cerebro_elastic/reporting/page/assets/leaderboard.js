// The leaderboard: sorted, filtered, grouped; of many rows only those in sight are in the document.

import { $, cut, h, number, plural, s } from "./dom.js";
import { on, section } from "./stream.js";
import { colour, configs, created, focus, focused, place, selected, summary, toggle, unselect } from "./model.js";
import { parse } from "./expression.js";
import { openConfig } from "./config.js";

const ROW = 34;
// A longer table has only the rows in sight.
const MOST_WHOLE = 100;
const SPARK = [72, 20];
let sort = { key: "best", up: null };
let test = null;
let items = [];
let columns = [];
let body = null;
let frame = null;
let current = 0;
let unseated; // the config whose row had the focus when the table was made anew
let rendered = new Map(); // the rows in sight by their place, until something changes

// What a row's filter, sorting and grouping see under a name.
function value(name, row, key) {
  if (key === "config") return name;
  if (Object.hasOwn(row.hparams, key)) return row.hparams[key];
  if (key === "epoch" || key === "epochs") return row.epoch;
  if (key === "progress") return row.done;
  if (key === "node") return row.on ?? row.last;
  if (["status", "best", "at", "parent", "reason"].includes(key)) return row[key];
  return row.metrics[key] ?? (key === summary()?.objective?.[0] ? row.best : undefined);
}

function names() {
  const known = new Set();
  for (const row of Object.values(configs())) for (const name of Object.keys(row.hparams)) known.add(name);
  return [...known];
}

function measureColumns() {
  const rows = Object.entries(configs());
  const widest = (texts, least, most) => Math.min(most, Math.max(least, ...texts.map((text) => text.length))) + 2.5;
  const metric = summary()?.objective?.[0] ?? "best";
  const shown = rows.length > 400 ? rows.slice(0, 400) : rows;
  const reasons = rows.map(([, row]) => reason(row)).filter(Boolean);
  columns = [
    { key: "rank", title: "#", width: 6, n: true },
    { key: "config", title: "config", width: widest(rows.slice(-50).map(([name]) => name), 5, 16) + 3 },
    { key: "best", title: metric, width: widest([metric, ...shown.map(([, row]) => row.text ?? "")], 8, 26), n: true },
    { key: null, title: "curve", width: 11 },
    { key: "at", title: "epoch", width: 8, n: true },
    { key: "progress", title: "progress", width: 11 },
    { key: "status", title: "status", width: widest(shown.map(([, row]) => statusText(row)), 8, 26) },
    ...names().map((name) => {
      const texts = shown.map(([, row]) => number(row.hparams[name]));
      const numeric = rows.every(([, row]) => ["number", "undefined"].includes(typeof row.hparams[name]));
      return { key: name, title: name, width: widest([name, ...texts], 5, 24), n: numeric, hparam: true };
    }),
    ...(reasons.length ? [{ key: "reason", title: "reason", width: widest(reasons, 8, 48) }] : []),
  ];
  const total = columns.reduce((sum, column) => sum + column.width, 0);
  const head = h("tr", {}, columns.map((column) => {
    const cell = h("th", { class: column.n ? "n" : null, scope: "col", "data-tip": column.title.length > 14 ? column.title : null },
      column.key ? h("button", { type: "button", "data-column": column.key, onclick: () => by(column.key) }, column.title) : column.title);
    const up = sort.up ?? natural(sort.key);
    if (column.key === sort.key) cell.setAttribute("aria-sort", up ? "ascending" : "descending");
    return cell;
  }));
  const table = h("table", { class: "board" }, h("colgroup", {}, columns.map(() => h("col"))), h("thead", {}, head), h("tbody"));
  table.style.minWidth = `${total}ch`;
  [...table.querySelectorAll("col")].forEach((col, index) => { col.style.width = `${(100 * columns[index].width) / total}%`; });
  const at = frame.scrollTop;
  const again = document.activeElement?.dataset?.column;
  unseated = inFocus();
  frame.replaceChildren(table);
  frame.scrollTop = at;
  if (again) [...frame.querySelectorAll("[data-column]")].find((button) => button.dataset.column === again)?.focus();
  body = table.tBodies[0];
}

const natural = (key) => (key === "best" || key === "rank" ? summary()?.objective?.[1] !== "max" || key === "rank" : true);

function by(key) {
  sort = sort.key === key ? { key, up: !(sort.up ?? natural(key)) } : { key, up: key === "best" ? null : true };
  measureColumns();
  arrange();
}

function compare([a, x], [b, y]) {
  const up = (sort.up ?? natural(sort.key)) ? 1 : -1;
  const of = (name, row) => (sort.key === "rank" ? place(name) : sort.key === "progress" ? (row.done ?? Infinity) : value(name, row, sort.key));
  const [left, right] = [of(a, x), of(b, y)];
  const [without, lacking] = [left === undefined || left === null, right === undefined || right === null];
  if (without || lacking) return without - lacking || created(a, b);
  const order = typeof left === "number" && typeof right === "number" ? left - right : String(left).localeCompare(String(right));
  return up * order || created(a, b);
}

function arrange() {
  const all = Object.entries(configs());
  const rows = all.filter(([name, row]) => !test || test((key) => value(name, row, key))).sort(compare);
  const key = $("group").value;
  if (key === "") items = rows.map(([config, row]) => ({ config, row }));
  else {
    const groups = new Map();
    for (const [config, row] of rows) {
      const label = number(value(config, row, key));
      if (!groups.has(label)) groups.set(label, []);
      groups.get(label).push({ config, row });
    }
    items = [...groups].flatMap(([label, members]) => {
      const values = members.map(({ row }) => row.best).filter((best) => best !== null);
      const mean = values.length ? values.reduce((sum, v) => sum + v, 0) / values.length : null;
      return [{ label: `${key} = ${label}`, count: members.length, mean }, ...members];
    });
  }
  const left = all.length - rows.length;
  rendered = new Map();
  $("shown").textContent = all.length ? `${plural(rows.length, "config")}${left ? ` of ${all.length}` : ""}` : "";
  draw();
}

function spark(config) {
  const metric = summary()?.objective?.[0];
  const points = (section("curves")[config]?.[metric] ?? []).filter(([, v]) => v !== null);
  if (points.length < 2) return "";
  const values = points.map(([, v]) => v);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const [x0, x1] = [points[0][0], points.at(-1)[0]];
  const [width, height] = SPARK;
  const line = points.map(([x, v]) => `${(((x - x0) / (x1 - x0 || 1)) * (width - 2) + 1).toFixed(1)},${(height - 2 - ((v - low) / (high - low || 1)) * (height - 4)).toFixed(1)}`).join(" ");
  return s("svg", { viewBox: `0 0 ${width} ${height}`, class: `spark ${colour(config)}`, "aria-hidden": "true" }, s("polyline", { points: line }));
}

// Why a config has ended.
const reason = (row) => (row.status === "live" ? "" : row.reason ?? "");

function statusText(row) {
  if (row.status !== "live") return row.status;
  if (row.on) return `${row.saving ? "saved by" : row.queued ? "next on" : "on"} ${row.on}`;
  return "waiting";
}

function line(item, index) {
  if (item.label) {
    return h("tr", { class: "group", "aria-rowindex": index + 2 },
      h("th", { colspan: columns.length, scope: "colgroup" }, `${item.label} · ${plural(item.count, "config")}${item.mean === null ? "" : ` · mean ${number(item.mean)}`}`));
  }
  const { config, row } = item;
  const chosen = selected.has(config);
  const total = summary()?.unitsOfConfig ?? 1;
  const done = row.status === "finished" ? 1 : row.done === null ? null : row.done / total;
  const cells = {
    rank: () => String(place(config) ?? "–"),
    config: () => [h("button", { type: "button", class: `pick ${colour(config)}`, "aria-pressed": String(chosen), tabindex: -1, "aria-label": `Show the curve of ${config} alone`, "data-tip": "show its curve (several can be chosen)", onclick: (event) => { event.stopPropagation(); toggle(config); } }, h("i", { class: "swatch" })), h("button", { type: "button", class: "link", tabindex: -1, onclick: (event) => { event.stopPropagation(); openConfig(config); } }, config)],
    best: () => row.text || number(row.best),
    null: () => spark(config),
    at: () => number(row.at),
    progress: () => (done === null ? h("span", { class: "soft" }, `epoch ${row.epoch}`) : meter(done, row)),
    status: () => h("span", { class: `status-${row.status}` }, statusText(row)),
    reason: () => h("span", { "data-tip": cut(reason(row), 300) }, reason(row)),
  };
  const tr = h("tr", { "data-config": config, "aria-rowindex": index + 2, "aria-selected": String(chosen), tabindex: index === current ? 0 : -1, class: focused() === config ? "pointed" : null },
    columns.map((column) => {
      const content = column.hparam ? number(row.hparams[column.key] ?? "") : cells[column.key]();
      const long = column.hparam && content.length > column.width - 3;
      return h("td", { class: column.n ? "n" : null, "data-tip": long ? content : null }, content);
    }));
  return tr;
}

function meter(done, row) {
  const bar = h("i");
  bar.style.width = `${(100 * done).toFixed(1)}%`;
  return h("span", { class: "meter", role: "img", "aria-label": `${Math.round(100 * done)} %, epoch ${row.epoch}`, "data-tip": `${Math.round(100 * done)} % of its units, ${row.epoch} epochs done` }, bar);
}

function draw() {
  if (!body) return;
  if (!items.length) {
    const none = Object.keys(configs()).length ? "No config fits the filter." : summary() ? "No config was created yet." : "The run's record is being read.";
    body.replaceChildren(h("tr", {}, h("td", { colspan: columns.length, class: "empty" }, none)));
    return;
  }
  current = Math.min(current, items.length - 1);
  const height = Math.max(frame.clientHeight, 500);
  const all = items.length <= MOST_WHOLE;
  const first = all ? 0 : Math.max(0, Math.floor(frame.scrollTop / ROW) - 6);
  const until = all ? items.length : Math.min(items.length, Math.ceil((frame.scrollTop + height) / ROW) + 6);
  const active = inFocus() ?? unseated;
  unseated = undefined;
  const space = (count) => { const row = h("tr", { class: "space", "aria-hidden": "true" }, h("td", { colspan: columns.length })); row.style.height = `${count * ROW}px`; return row; };
  body.replaceChildren(space(first), ...lines(first, until), space(items.length - until));
  body.parentNode.setAttribute("aria-rowcount", String(items.length + 1));
  if (active !== undefined) [...body.rows].find((row) => row.dataset.config === active)?.focus({ preventScroll: true });
}

const inFocus = () => document.activeElement?.closest?.("tr[data-config]")?.dataset.config;

// Rows that were in sight before are kept: scrolling makes only new ones.
function lines(first, until) {
  const rows = new Map();
  for (let index = first; index < until; index += 1) {
    const row = rendered.get(index) ?? line(items[index], index);
    if (row.dataset.config !== undefined) row.tabIndex = index === current ? 0 : -1;
    rows.set(index, row);
  }
  rendered = rows;
  return [...rows.values()];
}

function move(to) {
  current = Math.max(0, Math.min(items.length - 1, to));
  const top = current * ROW;
  const room = frame.clientHeight - ROW * 2;
  if (top < frame.scrollTop) frame.scrollTop = top;
  else if (top > frame.scrollTop + room) frame.scrollTop = top - room;
  draw();
  [...body.rows].find((row) => Number(row.getAttribute("aria-rowindex")) === current + 2)?.focus({ preventScroll: true });
}

function keys(event) {
  const row = event.target.closest("tr[data-config]");
  if (!row || event.target !== row) return;
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12, Home: -Infinity, End: Infinity };
  current = Number(row.getAttribute("aria-rowindex")) - 2;
  if (event.key in steps) move(current + steps[event.key]);
  else if (event.key === "Enter") openConfig(row.dataset.config);
  else if (event.key === " ") toggle(row.dataset.config);
  else return;
  event.preventDefault();
}

function refilter() {
  const text = $("filter").value.trim();
  const problem = $("filter-problem");
  try {
    const rows = Object.entries(configs());
    test = text ? parse(text, (key) => rows.some(([name, row]) => value(name, row, key) !== undefined)) : null;
    problem.hidden = true;
  } catch (error) {
    problem.textContent = `The filter does not count: ${error.message}.`;
    problem.hidden = false;
    test = null;
  }
  arrange();
}

export function start() {
  frame = $("board");
  let shape = "";
  on("configs curves run selection", () => {
    const now = JSON.stringify([names(), summary()?.objective, Object.keys(configs()).length, Object.values(configs()).filter(reason).length]);
    if (now !== shape || !body) { shape = now; measureColumns(); regroup(); if (test || $("filter").value) refilter(); }
    $("unselect").hidden = !selected.size;
    arrange();
  });
  on("focus", () => { for (const row of body?.rows ?? []) row.classList.toggle("pointed", row.dataset.config !== undefined && row.dataset.config === focused()); });
  let asked = false;
  frame.addEventListener("scroll", () => { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; draw(); }); } });
  frame.addEventListener("keydown", keys);
  frame.addEventListener("pointerover", (event) => focus(event.target.closest("tr")?.dataset.config ?? null));
  frame.addEventListener("pointerleave", () => focus(null));
  frame.addEventListener("focusin", (event) => focus(event.target.closest("tr")?.dataset.config ?? null));
  frame.addEventListener("click", (event) => {
    const config = event.target.closest("tr")?.dataset.config;
    if (config !== undefined && String(getSelection()) === "") openConfig(config);
  });
  $("filter").addEventListener("input", refilter);
  $("group").addEventListener("change", arrange);
  $("unselect").addEventListener("click", unselect);
  new ResizeObserver(draw).observe(frame);
  measureColumns();
  draw();
}

function regroup() {
  const before = $("group").value;
  const choices = ["status", "node", "epoch", ...names()];
  $("group").replaceChildren(h("option", { value: "" }, "nothing"), ...choices.map((name) => h("option", { value: name, selected: name === before }, name)));
}
