// Where in the search space the good configs lie: parallel coordinates, and one hyper-parameter at a time.

import { $, cut, h, hparams, number, plural, s } from "./dom.js";
import { on, section } from "./stream.js";
import { colour, configs, focus, focused, lazily, ranking, summary } from "./model.js";
import { openConfig } from "./config.js";
import { apart, axis } from "./scale.js";

// Lines over all axes are drawn so wide, and stretched to the page's width; heights are pixels.
const [WIDTH, HEIGHT, TOP, BOTTOM] = [1000, 312, 66, 296];
// Pixels between two axes: on a narrower page the chart is scrolled.
const LEAST = 52;
const NARROW = 360;
// Pixels beside the chart, where the last axis has its marks.
const MARGINS = 104;
// Pixels of a letter, and of a line of text; rows in which the names of axes take turns.
const [LETTER, LINE, ROWS] = [6.2, 14, 3];

const [SLICE_WIDTH, SLICE_HEIGHT] = [300, 200];
const [LEFT, RIGHT, UPPER, LOWER] = [52, 10, 10, 36];
const MOST_SLICES = 12;

// The configs that have a value of the objective, the best first, and the hyper-parameters in which they differ.
function compared() {
  const rows = ranking().map((config) => [config, section("configs")[config]]);
  const names = [...new Set(rows.flatMap(([, row]) => Object.keys(row.hparams)))];
  return { rows, names: names.filter((name) => new Set(rows.map(([, row]) => number(row.hparams[name]))).size > 1) };
}

// The hyper-parameters that are drawn from a range, and whether it is by their logarithm.
const drawn = () => section("run").spec?.logarithmic ?? {};

// The axes of parallel coordinates, and the height of each config's line on each of them.
export function coordinates(rows, names, metric, logarithmic, wide = NARROW) {
  const columns = [...names.map((name) => [name, rows.map(([, row]) => row.hparams[name] ?? null), logarithmic[name]]), [metric, rows.map(([, row]) => row.best)]];
  const letters = Math.floor((Math.max(LEAST, Math.max(wide, NARROW) / (columns.length - 1)) - 12) / LETTER);
  const longest = Math.max(...columns.map(([name]) => name.length)) + " (log)".length;
  const height = (share) => BOTTOM - share * (BOTTOM - TOP);
  const axes = columns.map(([name, values, log], index) => {
    const { share, marks, log: isLog } = axis(values, log);
    return { name, log: isLog, x: index / (columns.length - 1), heights: values.map((value) => height(share(value))), marks: apart(marks.map(([at, text]) => [height(at), text]), LINE) };
  });
  return { axes, letters, rows: Math.min(ROWS, Math.ceil(longest / letters)) };
}

function parallel({ rows, names }) {
  if (!names.length) return h("p", { class: "empty" }, "There is nothing to compare: no hyper-parameter differs between configs that have a value of the objective.");
  const metric = summary().objective[0];
  const { axes, letters, rows: turns } = coordinates(rows, names, metric, drawn(), $("space-body").clientWidth - MARGINS);
  const lines = rows.map(([config, row], index) => s("polyline", { class: colour(config), "data-config": config, "data-tip": `${config}: ${hparams(row.hparams)}, ${metric} ${number(row.best)}`, points: axes.map(({ x, heights }) => `${(WIDTH * x).toFixed(1)},${heights[index].toFixed(1)}`).join(" ") })).reverse();
  lines.sort((a, b) => (a.classList.contains("k0") ? 0 : 1) - (b.classList.contains("k0") ? 0 : 1));
  const inner = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: "100%", height: HEIGHT, preserveAspectRatio: "none" }, lines);
  const marks = axes.flatMap(({ name, x, log, marks: own }, index) => [
    s("line", { class: "axis", x1: `${100 * x}%`, x2: `${100 * x}%`, y1: TOP, y2: BOTTOM }),
    s("text", { x: `${100 * x}%`, y: TOP - 14 - 16 * (index % turns), class: index ? "mid name" : "name", "data-tip": name }, `${cut(name, turns * letters)}${log ? " (log)" : ""}`),
    ...own.map(([at, text]) => s("text", { x: `${100 * x}%`, dx: 6, y: at + 4, class: "halo", "data-tip": text }, cut(text, letters))),
  ]);
  const svg = s("svg", { id: "coordinates", height: HEIGHT, role: "img", "aria-label": `Parallel coordinates of hyper-parameters and ${metric}` }, inner, marks);
  svg.style.minWidth = `${LEAST * (axes.length - 1)}px`;
  return h("figure", {}, h("figcaption", {}, `Each line is a config: its hyper-parameters, and at the right its best ${metric}`), h("div", { class: "scroll" }, svg));
}

function slice(name, rows) {
  const metric = summary().objective[0];
  const across = axis(rows.map(([, row]) => row.hparams[name]), drawn()[name]);
  const up = axis(rows.map(([, row]) => row.best), false);
  const x = (share) => LEFT + 6 + share * (SLICE_WIDTH - LEFT - RIGHT - 12);
  const y = (share) => SLICE_HEIGHT - LOWER - 6 - share * (SLICE_HEIGHT - UPPER - LOWER - 12);
  const dots = rows.map(([config, row]) => s("circle", { cx: x(across.share(row.hparams[name])).toFixed(1), cy: y(up.share(row.best)).toFixed(1), r: 3.5, class: `dot ${colour(config)}`, "data-config": config, "data-tip": `${config}: ${name}=${number(row.hparams[name])}, ${metric} ${number(row.best)}` }));
  const svg = s("svg", { viewBox: `0 0 ${SLICE_WIDTH} ${SLICE_HEIGHT}`, role: "img", "aria-label": `${metric} of each config over ${name}` },
    apart(up.marks, 0.15).map(([share, mark]) => [s("line", { class: "grid", x1: LEFT, x2: SLICE_WIDTH - RIGHT, y1: y(share), y2: y(share) }), s("text", { x: LEFT - 5, y: y(share) + 4, class: "end" }, mark)]).flat(),
    apart(across.marks, 0.22).map(([share, mark]) => {
      const last = x(share) + cut(mark, 9).length * LETTER > SLICE_WIDTH + 20;
      return s("text", { x: last ? SLICE_WIDTH - 2 : x(share), y: SLICE_HEIGHT - LOWER + 16, class: last ? "end" : "mid", "data-tip": mark }, cut(mark, 9));
    }), dots);
  return h("figure", { class: "curve slice" }, h("figcaption", { "data-tip": name }, cut(name, 40)), svg);
}

function draw() {
  const space = compared();
  $("space-body").replaceChildren(parallel(space));
  const slices = space.names.map((name) => [name, space.rows.filter(([, row]) => name in row.hparams).reverse()]) // the best in front
    .filter(([name, having]) => new Set(having.map(([, row]) => number(row.hparams[name]))).size > 1).slice(0, MOST_SLICES);
  $("slices").replaceChildren(...slices.map(([name, having]) => slice(name, having)));
  $("one-by-one").hidden = !slices.length;
}

export function start() {
  lazily("space", "configs run selection", draw, 500);
  let width = $("space-body").clientWidth;
  new ResizeObserver(() => { if ($("space-body").clientWidth !== width) { width = $("space-body").clientWidth; draw(); } }).observe($("space-body"));
  const configOf = (event) => event.target.closest("[data-config]")?.dataset.config ?? null;
  $("space").addEventListener("pointerover", (event) => focus(configOf(event)));
  $("space").addEventListener("pointerleave", () => focus(null));
  $("space").addEventListener("click", (event) => { const config = configOf(event); if (config) openConfig(config); });
  on("focus", () => {
    $("coordinates")?.classList.toggle("dim", focused() !== null);
    for (const shape of $("space").querySelectorAll("[data-config]")) shape.classList.toggle("strong", shape.dataset.config === focused());
  });
}
