// Learning curves: a panel for each metric, a line for each config.

import { $, h, number, s, showTip } from "./dom.js";
import { markText, scale, ticks, wide } from "./scale.js";
import { on, section } from "./stream.js";
import { base, colour, configs, focus, focused, place, ranking, selected, summary } from "./model.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [58, 14, 10, 40];
const BEST = 8;
const MOST_PANELS = 6;
let panels = [];

// The part of a metric's name that does not name the data on which it was measured: "loss" of "train_loss" and "val/loss".
const STAGE = /(?:^|(?<=[_/.\- ]))(train|training|val|valid|validation|epoch)(?:[_/.\- ]|$)/g;
const quantity = (metric) => metric.replace(STAGE, "").replace(/^[_/.\- ]+|[_/.\- ]+$/g, "") || metric;

// The metrics of one quantity beside one another, those of validation first; the objective's quantity first of all.
export function inOrder(names, objective) {
  const key = (name) => [quantity(name) !== quantity(objective), quantity(name), name !== objective, name.includes("train"), name];
  const compare = (one, other) => { const at = one.findIndex((part, index) => part !== other[index]); return at < 0 ? 0 : one[at] < other[at] ? -1 : 1; };
  return [...names].sort((one, other) => compare(key(one), key(other)));
}

// What configs have logged by step, by config; and how many units each had done when it was read.
const stepCurves = {};
const readAt = {};
let reading = false;

const bySteps = () => $("across")?.value === "step";
const source = () => (bySteps() ? stepCurves : section("curves"));

// Read the steps of what is shown, again when a config has made another visit.
async function readSteps() {
  if (!bySteps() || reading) return;
  reading = true;
  let changed = false;
  for (const config of shownConfigs()) {
    const { status, done } = section("configs")[config] ?? {};
    const mark = `${status} ${done}`;
    if (readAt[config] === mark) continue;
    try {
      stepCurves[config] = (await (await fetch(`${base}/steps?config=${encodeURIComponent(config)}`)).json()).metrics ?? {};
      readAt[config] = mark;
      changed = true;
    } catch { break; }
  }
  reading = false;
  if (changed && bySteps()) rebuild(metrics());
}

function metrics() {
  const names = new Set();
  for (const curves of Object.values(source())) for (const name of Object.keys(curves)) names.add(name);
  return inOrder(names, summary()?.objective?.[0] ?? "");
}

function smooth(points, weight) {
  if (!weight) return points;
  let [level, trust] = [0, 0];
  return points.map(([x, v]) => {
    if (v === null) return [x, v];
    level = weight * level + (1 - weight) * v;
    trust = weight * trust + (1 - weight);
    return [x, level / trust];
  });
}

function shownConfigs() {
  if (bySteps()) return (selected.size ? [...selected] : ranking().length ? ranking() : Object.keys(configs())).slice(0, BEST);
  if (selected.size) return [...selected];
  return $("which").value === "best" ? ranking().slice(0, BEST) : Object.keys(section("curves")).filter((config) => configs()[config]);
}

// The range of the values without outliers that would press all others into one line.
function limits(values, log) {
  const finite = values.filter((v) => v !== null && (!log || v > 0)).sort((a, b) => a - b);
  if (!finite.length) return null;
  const [low, high] = [finite[Math.floor(finite.length / 20)], finite[finite.length - 1 - Math.floor(finite.length / 20)]];
  const reach = log ? Infinity : 3 * (high - low) || Infinity;
  return [Math.max(finite[0], low - reach), Math.min(finite.at(-1), high + reach)];
}

// Whether a range is drawn by its logarithm.
const logarithmic = (range) => $("scale").value === "log" || ($("scale").value === "" && wide(...range));

// The lines of a panel, and the range in which they are drawn.
function measure(panel) {
  const weight = Number($("smoothing").value);
  panel.lines = shownConfigs().map((config) => [config, smooth(source()[config]?.[panel.metric] ?? [], weight)]).filter(([, points]) => points.length);
  panel.values = panel.lines.flatMap(([, points]) => points.map(([, v]) => v));
  panel.range = limits(panel.values, $("scale").value === "log");
}

// The panels of each quantity.
function together(all) {
  const groups = new Map();
  for (const panel of all) groups.set(quantity(panel.metric), [...(groups.get(quantity(panel.metric)) ?? []), panel]);
  return [...groups.values()];
}

// Panels of one quantity share a scale if their values overlap.
function align() {
  for (const own of together(panels.filter((panel) => panel.range))) {
    const [lows, highs] = [own.map((panel) => panel.range[0]), own.map((panel) => panel.range[1])];
    if (Math.max(...lows) > Math.min(...highs)) continue;
    for (const panel of own) panel.range = [Math.min(...lows), Math.max(...highs)];
  }
}

function drawAll() {
  panels.forEach(measure);
  align();
  panels.forEach(drawPanel);
}

function drawPanel(panel) {
  const { metric, svg, figure, lines, range } = panel;
  const log = range ? logarithmic(range) : $("scale").value === "log";
  const width = Math.max(240, figure.clientWidth - 24);
  const height = Math.round(Math.min([560, 560, 420][panels.length] ?? 340, Math.max(220, width * 0.5)));
  const cut = range && panel.values.some((v) => v !== null && (v < range[0] || v > range[1]));
  figure.firstElementChild.textContent = `${metric}${log ? ", logarithmic" : ""}${cut ? "; outliers lie at the border" : ""}`;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.style.height = `${height}px`;
  if (!range) {
    svg.replaceChildren(s("text", { x: width / 2, y: height / 2, class: "mid" }, log ? "no value above 0" : "no value yet"));
    panel.lines = [];
    return;
  }
  const xs = lines.flatMap(([, points]) => [points[0][0], points.at(-1)[0]]);
  const [first, last] = bySteps() ? [Math.min(...xs), Math.max(...xs)] : [Math.min(1, ...xs), Math.max(2, ...xs)];
  const x = scale(first, last, LEFT, width - RIGHT, false);
  const y = scale(range[0], range[1], height - BOTTOM, TOP, log);
  panel.x = x; panel.y = y;
  const grid = ticks(range[0], range[1], log).map((v) => [s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(v), y2: y(v) }), s("text", { x: LEFT - 6, y: y(v) + 4, class: "end" }, markText(v))]);
  const across = ticks(first, last, false, Math.min(8, width / 60)).filter(Number.isInteger).map((v) => s("text", { x: x(v), y: height - BOTTOM + 17, class: "mid" }, markText(v)));
  const order = [...lines].sort(([a], [b]) => (place(b) ?? Infinity) - (place(a) ?? Infinity) || 0);
  const drawn = order.map(([config, points]) => curve(config, points, x, y));
  svg.classList.toggle("crowd", drawn.length > 100);
  panel.front = s("g");
  svg.replaceChildren(...grid.flat(), ...across, s("text", { x: (LEFT + width - RIGHT) / 2, y: height - 4, class: "mid" }, bySteps() ? "step" : "epoch"), ...drawn, panel.front);
  bringOut(panel);
}

function curve(config, points, x, y, paint = colour(config)) {
  const parts = [[]];
  for (const [epoch, value] of points) {
    if (value === null) parts.push([]);
    else parts.at(-1).push(`${x(epoch).toFixed(1)},${y(value).toFixed(1)}`);
  }
  return s("g", { class: paint, "data-config": config },
    parts.filter((part) => part.length).map((part) => (part.length > 1 ? s("polyline", { points: part.join(" ") }) : s("circle", { cx: part[0].split(",")[0], cy: part[0].split(",")[1], r: 2.5 }))));
}

// A small chart of one metric of one config.
export function chart(metric, points, across) {
  const [width, height, left, low] = [320, 170, 50, 36];
  const known = points.filter(([, v]) => v !== null);
  const caption = h("figcaption", {}, known.length ? `${metric}: ${number(known.at(-1)[1])} at ${across} ${number(known.at(-1)[0])}` : metric);
  if (!known.length) return h("figure", { class: "curve" }, caption, h("p", { class: "soft" }, "no finite value"));
  const [values, places] = [known.map(([, v]) => v), known.map(([x]) => x)];
  const [least, most, first, last] = [Math.min(...values), Math.max(...values), Math.min(...places), Math.max(...places)];
  const log = wide(least, most);
  const [x, y] = [scale(first, last, left, width - RIGHT, false), scale(least, most, height - low, TOP, log)];
  return h("figure", { class: "curve" }, caption, s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${metric} by ${across}, from ${number(values[0])} to ${number(values.at(-1))}` },
    ticks(least, most, log, 4).map((v) => [s("line", { class: "grid", x1: left, x2: width - RIGHT, y1: y(v), y2: y(v) }), s("text", { x: left - 6, y: y(v) + 4, class: "end" }, markText(v))]).flat(),
    ticks(first, last, false, 5).filter(Number.isInteger).map((v) => s("text", { x: x(v), y: height - low + 16, class: "mid" }, number(v))),
    s("text", { x: (left + width - RIGHT) / 2, y: height - 4, class: "mid" }, across), curve("", points, x, y, "k1")));
}

function bringOut(panel, point = null) {
  const config = focused();
  panel.svg.classList.toggle("dim", config !== null && panel.lines?.some(([name]) => name === config));
  const line = config === null ? undefined : panel.lines?.find(([name]) => name === config);
  if (!panel.front) return;
  panel.front.replaceChildren();
  if (!line) return;
  const strong = curve(config, line[1], panel.x, panel.y);
  strong.classList.add("strong");
  panel.front.append(strong);
  if (point) panel.front.append(s("circle", { cx: panel.x(point[0]), cy: panel.y(point[1]), r: 4, class: colour(config) }));
}

function hover(panel, event) {
  if (!panel.lines?.length) return;
  const at = panel.svg.getBoundingClientRect();
  const [px, py] = [event.clientX - at.left, event.clientY - at.top];
  let [near, config, point] = [40 ** 2, null, null];
  for (const [name, points] of panel.lines) {
    for (const [epoch, value] of points) {
      if (value === null) continue;
      const distance = (panel.x(epoch) - px) ** 2 + (panel.y(value) - py) ** 2;
      if (distance < near) [near, config, point] = [distance, name, [epoch, value]];
    }
  }
  focus(config);
  if (!config) { showTip(""); bringOut(panel); return; }
  showTip(`${config}, ${bySteps() ? "step" : "epoch"} ${number(point[0])}: ${panel.metric} ${number(point[1])}\n${Object.entries(section("configs")[config]?.hparams ?? {}).map(([name, v]) => `${name}=${number(v)}`).join(" ")}`, event.clientX, event.clientY);
  bringOut(panel, point);
}

function rebuild(names) {
  const chosen = $("metric").value;
  $("metric").replaceChildren(h("option", { value: "" }, names.length > MOST_PANELS ? `the first ${MOST_PANELS}` : "all"), ...names.map((name) => h("option", { value: name, selected: name === chosen }, name)));
  $("metric").parentNode.hidden = names.length < 2;
  layout(names);
}

function layout(names) {
  const chosen = $("metric").value;
  const shown = chosen ? [chosen] : names.slice(0, MOST_PANELS);
  panels = shown.map((metric) => {
    const svg = s("svg", { role: "img", "aria-label": `${metric} of each config over ${bySteps() ? "steps" : "epochs"}`, "data-own-tip": true });
    const figure = h("figure", { class: "curve" }, h("figcaption", {}, metric), svg);
    const panel = { metric, svg, figure, lines: [] };
    svg.addEventListener("pointermove", (event) => hover(panel, event));
    svg.addEventListener("pointerleave", () => { focus(null); showTip(""); });
    return panel;
  });
  const none = h("p", { class: "empty" }, bySteps() && reading ? "What was logged is being read." : bySteps() ? "Nothing that was logged can be read from the page's machine." : "No config has logged a metric yet.");
  const places = together(panels).map((own) => own.map((panel) => panel.figure)).map((figures) => (figures.length > 1 ? h("div", { class: "several" }, figures) : figures[0]));
  $("panels").replaceChildren(...(places.length ? places : [none]));
  $("panels").classList.toggle("one", panels.length < 2);
  $("no-training").hidden = !names.length || names.some((name) => name.includes("train"));
  drawAll();
}

export function start() {
  let shape = null;
  let due = 0;
  const redraw = () => { due = 0; drawAll(); readSteps(); };
  on("curves run selection", () => {
    const names = metrics();
    const now = JSON.stringify(names);
    if (now !== shape) { shape = now; rebuild(names); }
    else if (!due) due = setTimeout(redraw, Object.keys(section("curves")).length > 300 ? 600 : 100);
  });
  on("focus", () => panels.forEach((panel) => bringOut(panel)));
  $("metric").addEventListener("change", () => layout(metrics()));
  $("across")?.addEventListener("change", () => { $("which").parentNode.hidden = bySteps(); rebuild(metrics()); readSteps(); });
  for (const name of ["which", "smoothing", "scale"]) $(name).addEventListener("input", redraw);
  let width = 0;
  new ResizeObserver(() => { if ($("panels").clientWidth !== width) { width = $("panels").clientWidth; redraw(); } }).observe($("panels"));
  layout([]);
}
