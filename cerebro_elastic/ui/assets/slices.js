// The search space, one hyper-parameter at a time: a dot for each config, its value across, its best objective up.

import { $, h, number, s, ticks } from "./dom.js";
import { on, section } from "./stream.js";
import { colour, focus, focused, ranking, summary } from "./model.js";
import { openConfig } from "./dialogs.js";

const [WIDTH, HEIGHT] = [300, 200];
const [LEFT, RIGHT, TOP, BOTTOM] = [52, 10, 10, 36];
const MOST = 12;

const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));

// Where a value is from 0 to 1, and the marks of the axis. Numbers are logarithmic where the space is, others are in columns.
// A few numbers far apart, as in a grid, are the marks themselves.
function axis(values, log) {
  if (values.every((value) => typeof value === "number")) {
    const own = [...new Set(values)].sort((one, other) => one - other);
    const [low, high] = [own[0], own.at(-1)];
    const level = log && low > 0 ? Math.log10 : (value) => value;
    const share = (value) => (high > low ? (level(value) - level(low)) / (level(high) - level(low)) : 0.5);
    const apart = own.every((value, index) => index === 0 || share(value) - share(own[index - 1]) > 0.18);
    const marks = apart ? own : ticks(low, high, log && low > 0, 3).filter((value) => value >= low && value <= high);
    return { share, marks: marks.map((value) => [share(value), number(value)]) };
  }
  const names = [...new Set(values.map(text))].sort();
  const share = (value) => (names.indexOf(text(value)) + 0.5) / names.length;
  return { share, marks: names.length > 6 ? [] : names.map((name, index) => [(index + 0.5) / names.length, name.length > 9 ? `${name.slice(0, 8)}…` : name]) };
}

function slice(name, rows, log) {
  const across = axis(rows.map(([, row]) => row.hparams[name]), log);
  const up = axis(rows.map(([, row]) => row.best), false);
  const x = (share) => LEFT + 6 + share * (WIDTH - LEFT - RIGHT - 12);
  const y = (share) => HEIGHT - BOTTOM - 6 - share * (HEIGHT - TOP - BOTTOM - 12);
  const dots = rows.map(([config, row]) => s("circle", { cx: x(across.share(row.hparams[name])).toFixed(1), cy: y(up.share(row.best)).toFixed(1), r: 3.5, class: `dot ${colour(config)}`, "data-config": config, "data-tip": `${config}: ${name}=${number(row.hparams[name])}, ${summary().objective[0]} ${number(row.best)}` }));
  const svg = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${summary().objective[0]} of each config over ${name}` },
    up.marks.map(([share, mark]) => [s("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(share), y2: y(share) }), s("text", { x: LEFT - 5, y: y(share) + 4, class: "end" }, mark)]).flat(),
    across.marks.map(([share, mark]) => s("text", { x: x(share), y: HEIGHT - BOTTOM + 16, class: "mid" }, mark)), dots);
  return h("figure", { class: "curve slice" }, h("figcaption", { "data-tip": name }, name.length > 40 ? `${name.slice(0, 39)}…` : name), svg);
}

function draw() {
  const configs = section("configs");
  const rows = ranking().map((config) => [config, configs[config]]).reverse(); // the best in front
  const names = [...new Set(rows.flatMap(([, row]) => Object.keys(row.hparams)))];
  const logarithmic = new Set((section("run").axes?.axes ?? []).filter((axis) => axis.log).map((axis) => axis.name));
  const figures = names.map((name) => [name, rows.filter(([, row]) => name in row.hparams)])
    .filter(([name, having]) => new Set(having.map(([, row]) => text(row.hparams[name]))).size > 1).slice(0, MOST)
    .map(([name, having]) => slice(name, having, logarithmic.has(name)));
  $("slices").replaceChildren(...(figures.length ? figures : [h("p", { class: "empty" }, "No hyper-parameter differs between configs that have a value of the objective.")]));
}

export function start() {
  let [seen, due] = [false, 0];
  const soon = () => { due ||= setTimeout(() => { due = 0; if (seen) draw(); }, 500); };
  new IntersectionObserver(([entry]) => { seen = entry.isIntersecting; soon(); }, { rootMargin: "300px" }).observe($("slices"));
  on("configs run selection", soon);
  on("focus", () => { for (const dot of $("slices").querySelectorAll(".dot")) dot.classList.toggle("strong", dot.dataset.config === focused()); });
  $("slices").addEventListener("pointerover", (event) => focus(event.target.closest("[data-config]")?.dataset.config ?? null));
  $("slices").addEventListener("click", (event) => { const config = event.target.closest("[data-config]")?.dataset.config; if (config) openConfig(config); });
}
