// The chart of nodes and units, on a canvas: a row for each node, a bar for each attempt.

import { $, clock, h, number, plural, showTip } from "./dom.js";
import { ticks } from "./scale.js";
import { now, on, section } from "./stream.js";
import { colour, colours, focus, focused, live, spans } from "./model.js";

const [ROW, BAR, TOP, BOTTOM] = [22, 14, 22, 26];
const MOST_ROWS = 300;
let lanes = new Map();
let bars = new Map();
let view = null;

function collect() {
  const names = new Set([...Object.keys(section("shares")), ...Object.keys(section("nodes"))]);
  bars = new Map();
  const add = (node, bar) => { names.add(node); if (!bars.has(node)) bars.set(node, []); bars.get(node).push(bar); };
  for (const span of spans()) add(span.node, { ...span, what: `${span.config} epoch ${span.epoch} ${span.phase === "evaluate" ? "evaluation" : "partition"} ${span.partition}`, how: spent(span) });
  for (const span of section("run").lost ?? []) add(span.node, { ...span, what: span.config, how: span.why });
  for (const span of section("run").together ?? []) add(span.node, { ...span, what: `${span.attempts} attempts at ${plural(span.configs, "config")}`, how: "" });
  for (const list of bars.values()) list.sort((a, b) => a.begin - b.begin);
  const natural = new Intl.Collator("en", { numeric: true });
  lanes = new Map([...names].sort(natural.compare).map((name, index) => [name, index]));
}

// What a unit took, for people.
export function spent({ strategy, seconds, hop, fetch, save, left }) {
  return [strategy, `${number(seconds)} s`, `hop ${number(hop)} s`, fetch && `fetch ${number(fetch)} s`, save && `saved ${number(save)} s behind it`, left && `left after ${left} ${left === 1 ? "batch" : "batches"}`].filter(Boolean).join(", ");
}

function range() {
  let [begin, end] = [Infinity, 0];
  for (const list of bars.values()) for (const bar of list) { begin = Math.min(begin, bar.begin); end = Math.max(end, bar.end); }
  const running = Object.values(section("nodes")).filter((node) => node.unit);
  for (const { unit } of running) { begin = Math.min(begin, unit.began); end = Math.max(end, unit.began); }
  if (live() && running.length) end = Math.max(end, now());
  const last = Number($("span").value);
  return { origin: begin, begin: last ? Math.max(begin, end - last) : begin, end };
}

export function draw() {
  const canvas = $("gantt");
  const { origin, begin, end } = range();
  const empty = !lanes.size || !(end >= begin);
  canvas.hidden = empty;
  $("no-units").hidden = !empty;
  if (empty) return;
  const width = canvas.parentNode.clientWidth - 24;
  const height = TOP + lanes.size * ROW + BOTTOM;
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "11px system-ui, sans-serif";
  const paint = colours();
  const left = Math.min(width * 0.3, 16 + Math.max(...[...lanes.keys()].map((name) => context.measureText(short(name)).width)));
  const x = (at) => left + ((at - begin) / Math.max(end - begin, 1e-9)) * (width - left - 10);
  view = { x, left, width, height, origin, begin, end };
  axis(context, paint);
  context.textBaseline = "middle";
  for (const [name, index] of lanes) {
    context.fillStyle = paint.soft;
    context.textAlign = "right";
    context.fillText(short(name), left - 8, TOP + index * ROW + BAR / 2);
  }
  const pointed = focused();
  for (const [node, list] of bars) for (const bar of list) rectangle(context, paint, node, bar, pointed);
  for (const [node, row] of Object.entries(section("nodes"))) {
    if (row.unit) rectangle(context, paint, node, { config: row.unit.config, begin: row.unit.began, end: Math.max(row.unit.began, end), running: true }, pointed);
  }
  quarantines(context, paint);
  marks(context, paint);
}

const short = (name) => (name.length <= 18 ? name : `…${name.slice(-17)}`);

function axis(context, paint) {
  const { x, begin, end, origin, height } = view;
  const seconds = end - begin;
  const [unit, name] = seconds >= 7200 ? [3600, "h"] : seconds >= 120 ? [60, "min"] : [1, "s"];
  context.textAlign = "center";
  context.textBaseline = "alphabetic";
  const step = Math.max(2, Math.min(8, (view.width - view.left) / 70));
  for (const mark of ticks((begin - origin) / unit, (end - origin) / unit, false, step)) {
    const at = Math.round(x(origin + mark * unit)) + 0.5;
    context.strokeStyle = paint.rule;
    context.beginPath();
    context.moveTo(at, TOP - 4);
    context.lineTo(at, height - BOTTOM + 4);
    context.stroke();
    context.fillStyle = paint.soft;
    context.fillText(`${number(mark)} ${name}`, at, height - 8);
  }
}

function rectangle(context, paint, node, bar, pointed) {
  const { x, left, begin } = view;
  if (bar.end < begin) return;
  const from = Math.max(left, x(bar.begin));
  const width = Math.max(x(bar.end) - from - 0.4, 0.6);
  const y = TOP + lanes.get(node) * ROW;
  context.globalAlpha = pointed !== null && pointed !== bar.config ? 0.15 : bar.lost ? 0.4 : 1;
  context.fillStyle = bar.lost ? paint.fault : paint[colour(bar.config)];
  context.fillRect(from, y, width, BAR);
  if (bar.running) {
    context.fillStyle = paint.ink;
    context.fillRect(from + width - 1.5, y - 2, 1.5, BAR + 4);
  }
  context.globalAlpha = 1;
}

function quarantines(context, paint) {
  const { x, left } = view;
  for (const { node, start: begin, end } of section("run").quarantines ?? []) {
    if (!lanes.has(node) || end < view.begin) continue;
    const from = Math.max(left, x(begin));
    context.globalAlpha = 0.25;
    context.fillStyle = paint.quarantined;
    context.fillRect(from, TOP + lanes.get(node) * ROW, Math.max(1, x(end) - from), BAR);
    context.globalAlpha = 1;
    context.strokeStyle = paint.quarantined;
    context.setLineDash([3, 2]);
    context.strokeRect(from + 0.5, TOP + lanes.get(node) * ROW + 0.5, Math.max(1, x(end) - from) - 1, BAR - 1);
    context.setLineDash([]);
  }
}

function marks(context, paint) {
  for (const { at: moment, node, fault } of section("run").health?.marks ?? []) {
    if (moment < view.begin) continue;
    const [px, y] = [view.x(moment), lanes.has(node) ? TOP + lanes.get(node) * ROW + 1 : 4];
    context.fillStyle = fault ? paint.fault : paint.event;
    context.strokeStyle = paint.panel;
    context.beginPath();
    context.moveTo(px, y);
    context.lineTo(px + 5, y + 12);
    context.lineTo(px - 5, y + 12);
    context.closePath();
    context.fill();
    context.stroke();
  }
}

const since = (moment) => (view.end - view.origin < 120 ? `${(moment - view.origin).toFixed(2)} s` : clock(moment - view.origin));

// What the chart shows of a node, as rows; only while somebody looks.
function rows() {
  if (!$("gantt-table").open || !view) return;
  const [chosen, names] = [$("gantt-node").value, [...lanes.keys()]];
  if (JSON.stringify(names) !== $("gantt-node").dataset.shape) {
    $("gantt-node").dataset.shape = JSON.stringify(names);
    $("gantt-node").replaceChildren(...names.map((name) => h("option", { value: name, selected: name === chosen }, name)));
  }
  const node = $("gantt-node").value;
  const marks = (section("run").health?.marks ?? []).filter((mark) => mark.node === node).map((mark) => ({ begin: mark.at, end: mark.at, what: mark.text, how: mark.fault ? "a fault" : "" }));
  const quiet = (section("run").quarantines ?? []).filter((each) => each.node === node).map((each) => ({ begin: each.start, end: each.end, what: "in quarantine", how: each.why }));
  const all = [...(bars.get(node) ?? []), ...quiet, ...marks].filter((row) => row.end >= view.begin).sort((a, b) => a.begin - b.begin);
  const unit = section("nodes")[node]?.unit;
  if (unit) all.push({ begin: unit.began, end: null, what: `${unit.config} epoch ${unit.epoch} partition ${unit.partition}`, how: "under way" });
  const shown = all.slice(-MOST_ROWS);
  $("gantt-shown").textContent = `${shown.length < all.length ? `the last ${shown.length} of ` : ""}${plural(all.length, "row")}, in the time that the chart shows`;
  const shape = JSON.stringify([node, all.length, shown[0]?.begin, shown.at(-1)?.begin, view.origin]);
  if (shape === $("gantt-rows").dataset.shape) return; // somebody reads it
  $("gantt-rows").dataset.shape = shape;
  $("gantt-rows").replaceChildren(h("table", {}, h("thead", {}, h("tr", {}, ["from", "to", "what", "how"].map((title, index) => h("th", { scope: "col", class: index < 2 ? "n" : null }, title)))),
    h("tbody", {}, shown.map((row) => h("tr", {}, h("td", { class: "n" }, since(row.begin)), h("td", { class: "n" }, row.end === null ? "" : since(row.end)), h("td", {}, row.what), h("td", { class: "wide" }, row.how))))));
}

function at(event) {
  if (!view) return null;
  const box = $("gantt").getBoundingClientRect();
  const [px, py] = [event.clientX - box.left, event.clientY - box.top];
  const time = view.begin + ((px - view.left) / (view.width - view.left - 10)) * (view.end - view.begin);
  const node = [...lanes.keys()][Math.floor((py - TOP + 4) / ROW)];
  const mark = (section("run").health?.marks ?? []).find((each) => Math.abs(view.x(each.at) - px) < 6 && (each.node === node || (py < TOP && !lanes.has(each.node))));
  if (mark) return { text: `about ${since(mark.at)}: ${mark.text}`, config: null };
  if (node === undefined || px < view.left) return null;
  const unit = section("nodes")[node]?.unit;
  if (unit && time >= unit.began) return { config: unit.config, text: `${unit.config} epoch ${unit.epoch} partition ${unit.partition} on ${node}, for ${clock(now() - unit.began)} so far${unit.expected ? ` of about ${clock(unit.expected)}` : ""}` };
  const quarantine = (section("run").quarantines ?? []).find((each) => each.node === node && each.start <= time && time <= each.end);
  const near = (3 * (view.end - view.begin)) / (view.width - view.left);
  const bar = (bars.get(node) ?? []).findLast?.((each) => each.begin <= time + near && each.end >= time - near);
  if (!bar) return { text: quarantine ? `${node} in quarantine for about ${number(quarantine.end - quarantine.start)} s: ${quarantine.why}` : `${node}: idle`, config: null };
  return { config: bar.config, text: `${bar.what} on ${node}, ${since(bar.begin)} to ${since(bar.end)}${bar.how ? `: ${bar.how}` : ""}` };
}

export function start() {
  let due = 0;
  const soon = () => { if (!due) due = setTimeout(() => { due = 0; collect(); draw(); rows(); }, Object.keys(section("spans")).length > 20000 ? 900 : 150); };
  on("spans nodes shares run selection configs", soon);
  on("focus", draw);
  const canvas = $("gantt");
  canvas.dataset.ownTip = "";
  canvas.addEventListener("pointermove", (event) => { const found = at(event); focus(found?.config ?? null); showTip(found?.text ?? "", event.clientX, event.clientY); });
  canvas.addEventListener("pointerleave", () => { focus(null); showTip(""); });
  $("span").addEventListener("change", () => { draw(); rows(); });
  $("gantt-table").addEventListener("toggle", rows);
  $("gantt-node").addEventListener("change", rows);
  new ResizeObserver(draw).observe(canvas.parentNode);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  setInterval(() => { if (live() && !document.hidden) draw(); }, 500);
}
