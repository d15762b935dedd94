// The parts of the page that are words and tables: tiles, nodes, health, search space, bytes, recipe.

import { $, bytes, clock, h, hparams, number, percent, plural, s } from "./dom.js";
import { now, on, section } from "./stream.js";
import { base, colour, focus, focused, live, run, summary } from "./model.js";
import { actionButton, askToDrain, openConfig, whyNot } from "./dialogs.js";
import { moved } from "./hops.js";

const METHODS = 8;

function idle() {
  const shares = Object.values(section("shares"));
  const present = shares.reduce((sum, share) => sum + share.present, 0);
  return present ? shares.reduce((sum, share) => sum + share.idle, 0) / present : null;
}

function tiles() {
  const all = summary();
  if (!all) return;
  const [done, total] = all.units;
  const best = all.best[0];
  const counts = all.configs;
  const configs = Object.values(counts).reduce((sum, count) => sum + count, 0);
  const elapsed = all.began ? (all.live ? now() : all.until) - all.began : null;
  const others = ["live", "stopped", "failed"].filter((status) => counts[status]).map((status) => `${counts[status]} ${status}`).join(", ");
  const health = section("run").health;
  const tile = (value, text, tip = null) => h("li", { "data-tip": tip }, h("b", {}, value), text);
  $("tiles").replaceChildren(
    tile(best ? number(best.best) : "–", best ? `best ${all.objective[0]}, ${best.config}` : `best ${all.objective[0]}`, best ? hparams(best.hparams) : null),
    tile(`${counts.finished ?? 0}/${configs}`, `configs finished${others ? `; ${others}` : ""}`),
    tile(`${done}/${total}`, "units done"),
    tile(clock(elapsed), all.live ? "since the first unit" : "from first unit to last"),
    all.live ? tile(all.left === null ? "–" : clock(all.left), "about to go", "how long the rest takes if nodes and configs stay as they are") : tile(moved().split(", ")[1] ?? "–", `moved in ${moved().split(",")[0]}`),
    all.live ? tile(`${all.busy}/${all.nodes}`, "nodes at work") : tile(String(Object.keys(section("shares")).length), "nodes took part"),
    tile(idle() === null ? "–" : percent(idle()), "of the nodes' time idle"),
    tile(String(health?.faults ?? 0), "faults"),
  );
  const bar = $("progress");
  bar.setAttribute("aria-valuemax", String(total));
  bar.setAttribute("aria-valuenow", String(done));
  bar.firstElementChild.style.width = `${total ? (100 * done) / total : 0}%`;
  const state = $("state");
  state.hidden = false;
  const reading = section("run").connection?.state === "reading";
  state.textContent = all.live ? "live" : reading ? "reading" : all.outcome ?? "not running";
  state.className = `badge ${all.live ? "on" : all.outcome || reading ? "" : "warn"}`;
  document.title = `${all.live ? `${Math.floor((100 * done) / (total || 1))} % ` : ""}${run}: cerebro`;
}

function notice() {
  const connection = section("run").connection;
  const all = summary();
  const element = $("notice");
  const text = connection?.state === "lost" ? `The run cannot be read at this moment: ${connection.why}. What is shown is what was known before.`
    : connection?.state === "reading" ? "The record is being read. What is shown is how the run stood earlier."
    : all && !all.live && !all.outcome ? `The run is not running here. The same \`cerebro run\` goes on from where it stopped.`
    : all?.live && !all.leader ? "No controller leads the run at this moment. Units go on; the next one takes over."
    : "";
  element.textContent = text;
  element.hidden = !text;
}

function nodeTable() {
  const registered = section("nodes");
  const shares = section("shares");
  const names = [...new Set([...Object.keys(registered), ...Object.keys(shares)])].sort(new Intl.Collator("en", { numeric: true }).compare);
  const again = document.activeElement?.dataset?.drain;
  if (!names.length) { $("node-table").replaceChildren(); return; }
  const there = live() || Object.keys(registered).length > 0;
  const rows = names.map((name) => {
    const [node, share] = [registered[name], shares[name]];
    const doing = !node ? "not there" : node.stalled ? `stalled: ${node.stalled}` : node.quarantined ? `quarantined: ${node.quarantined}` : node.unit ? `${node.unit.config} epoch ${node.unit.epoch}, partition ${node.unit.partition}${node.unit.strategy ? ` by ${node.unit.strategy}` : ""}` : node.starting ? "starting" : "idle";
    const drain = !node ? null : actionButton(node.leaving ? "leaves" : "Let it leave", whyNot("drain", node), () => askToDrain(name, node));
    if (drain) drain.dataset.drain = name;
    const parts = ["training", "hopping", "profiling", "lost", "quarantined", "idle"];
    const word = (part) => (part === "hopping" ? "hops" : part);
    const bar = share && h("span", { class: "shares", role: "img", "aria-label": parts.map((part) => `${word(part)} ${percent(share[part] / share.present)}`).join(", ") }, parts.slice(0, -1).map((part) => { const i = h("i", { class: part, "data-tip": `${name}: ${word(part)} ${percent(share[part] / share.present)}` }); i.style.width = `${(100 * share[part]) / (share.present || 1)}%`; return i; }));
    return h("tr", { class: node?.stalled || node?.quarantined ? "fault" : null },
      h("td", { class: "whole" }, name), h("td", { class: "whole" }, (node ?? share).host), h("td", { class: "whole" }, (node ?? share).hardware), there ? h("td", { class: "wide" }, doing, node?.saves ? h("small", {}, ` saves ${node.saves}`) : null) : null,
      h("td", { class: "n" }, share ? String(share.visits) : "–"), h("td", { class: "n" }, share ? percent(share.training / share.present) : "–"), h("td", { class: "n" }, share ? percent(share.idle / share.present) : "–"), h("td", {}, bar), there ? h("td", {}, drain) : null);
  });
  $("node-table").replaceChildren(
    h("table", {}, h("thead", {}, h("tr", {}, ["node", "host", "hardware", ...(there ? ["now"] : [])].map((title) => h("th", { scope: "col" }, title)), ["units", "training", "idle"].map((title) => h("th", { scope: "col", class: "n" }, title)), h("th", { scope: "col" }, "its time"), there ? h("th", { scope: "col" }, h("span", { class: "hidden" }, "actions")) : null)), h("tbody", {}, rows)),
    h("p", { class: "soft" }, h("i", { class: "key training" }), " training ", h("i", { class: "key hopping" }), " hops: loading and saving states, waiting for partitions ", h("i", { class: "key profiling" }), " profiles ", h("i", { class: "key lost" }), " lost ", h("i", { class: "key quarantined" }), " quarantine ", h("i", { class: "key idle" }), " idle"));
  if (again !== undefined) [...$("node-table").querySelectorAll("[data-drain]")].find((button) => button.dataset.drain === again)?.focus();
}

function health() {
  const { health: found, spec } = section("run");
  const all = summary();
  if (!found || !all) { $("health-body").replaceChildren(h("p", { class: "empty" }, "The run's record is being read.")); return; }
  const trouble = [
    ...found.failures.map((text) => h("p", { class: "story fault" }, text)),
    ...Object.entries(section("nodes")).flatMap(([name, node]) => [node.quarantined && `${name} gets no units for a while: ${node.quarantined}`, node.stalled && `${name} shows no sign of life: ${node.stalled}`, node.leaving && `${name} is leaving.`].filter(Boolean).map((text) => h("p", { class: "story" }, text))),
  ];
  const began = all.began ?? 0;
  const share = idle();
  const forecast = found.gap && h("li", {}, `${all.outcome ? "The run took" : "By what is known so far the run will take"} ${clock(found.gap[0])}; no order of its units would have been done before ${clock(found.gap[1])}: an optimality gap of ${percent(found.gap[2])}.`);
  $("health-body").replaceChildren(
    ...(trouble.length ? trouble : [h("p", { class: "good" }, found.faults ? "Nothing is wrong at this moment." : "Nothing has gone wrong.")]),
    h("ul", {},
      forecast,
      all.live && all.left !== null ? h("li", {}, `It ends in about ${clock(all.left)}, around ${new Date(Date.now() + 1000 * all.left).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })}.`) : null,
      share === null ? null : h("li", {}, `${percent(share)} of the nodes' time was idle.`),
      spec?.storage ? h("li", {}, "States are kept at ", h("code", {}, spec.storage), ".") : null,
      all.live ? h("li", {}, all.leader ? `${all.leader} leads the run.` : "No controller leads the run at this moment.") : null),
    ...(found.marks.length ? [h("h3", {}, "What happened"), h("div", { class: "scroll events" }, h("table", {}, h("tbody", {}, [...found.marks].reverse().map(({ at, text, fault }) => h("tr", { class: fault ? "fault" : null }, h("td", { class: "n narrow" }, `about ${clock(at - began)}`), h("td", {}, text)))))), found.earlier ? h("p", { class: "soft" }, `and ${found.earlier} before.`) : null].filter(Boolean) : []));
}

function space() {
  const { axes } = section("run");
  const paths = Object.entries(section("paths"));
  const place = $("space-body");
  if (!axes || !paths.length) { place.replaceChildren(h("p", { class: "empty" }, "There is nothing to compare yet: no hyper-parameter differs between configs that have a value of the objective.")); return; }
  const lines = paths.map(([config, [points, tip]]) => s("polyline", { points, class: colour(config), "data-config": config, "data-tip": tip }));
  lines.sort((a, b) => (a.classList.contains("k0") ? 0 : 1) - (b.classList.contains("k0") ? 0 : 1));
  const inner = s("svg", { viewBox: `0 0 ${axes.width} ${axes.height}`, width: "100%", height: axes.height, preserveAspectRatio: "none" }, lines);
  const cut = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);
  const marks = axes.axes.flatMap(({ name, x, log, ticks }, index) => [
    s("line", { class: "axis", x1: `${x}%`, x2: `${x}%`, y1: axes.top, y2: axes.bottom }),
    s("text", { x: `${x}%`, y: axes.top - 14 - 16 * (index % axes.rows), class: index ? "mid name" : "name", "data-tip": name }, `${cut(name, axes.rows * axes.letters)}${log ? " (log)" : ""}`),
    ...ticks.map(({ at, text }) => s("text", { x: `${x}%`, dx: 6, y: at + 4, class: "halo", "data-tip": text }, cut(text, axes.letters))),
  ]);
  const svg = s("svg", { id: "coordinates", height: axes.height, role: "img", "aria-label": "Parallel coordinates of hyper-parameters and the objective" }, inner, marks);
  svg.style.minWidth = `${axes.least * (axes.axes.length - 1)}px`;
  svg.addEventListener("pointerover", (event) => focus(event.target.closest("[data-config]")?.dataset.config ?? null));
  svg.addEventListener("pointerleave", () => focus(null));
  svg.addEventListener("click", (event) => { const config = event.target.closest("[data-config]")?.dataset.config; if (config) openConfig(config); });
  place.replaceChildren(h("figure", {}, h("figcaption", {}, `Each line is a config: its hyper-parameters, and at the right its best ${summary()?.objective?.[0] ?? "value"}`), h("div", { class: "scroll" }, svg)));
}

let asked = 0;
async function importances() {
  const values = Object.values(section("configs")).filter((row) => row.best !== null).length;
  if (values === asked) return;
  asked = values;
  const place = $("importances");
  try {
    const found = await (await fetch(`${base}/importances`)).json();
    if (found.problem) { place.replaceChildren(h("p", { class: "soft" }, `${found.problem}.`)); return; }
    place.replaceChildren(h("p", { class: "soft" }, `How much of the difference between ${plural(found.configs, "config")} each hyper-parameter explains, by optuna's PED-ANOVA.`), ...found.shares.map(([name, share]) => {
      const bar = h("i");
      bar.style.width = `${100 * share}%`;
      return h("div", { class: "bar" }, h("span", { class: "label", "data-tip": name }, name), h("span", { class: "track" }, bar), h("span", { class: "n" }, percent(share)));
    }));
  } catch { asked = 0; }
}

function traffic() {
  const { traffic: found, spec } = section("run");
  const place = $("traffic-body");
  if (!found) { place.replaceChildren(h("p", { class: "empty" }, "Nothing was moved yet.")); return; }
  const own = found.communication[0]?.bytes || 0;
  const most = Math.max(...found.communication.map((cost) => cost.bytes), 1);
  place.replaceChildren(
    h("p", {}, `${plural(found.hops, "hop")} brought ${bytes(found.hopped)} of states to the nodes that trained on; ${found.stays} times a config went on where it was. ${bytes(found.written)} of states were written. `, found.dataset === null ? `The dataset at ${spec?.data || "?"} is out of reach from here, so methods that copy it are left out.` : `The dataset has ${bytes(found.dataset)}; the hosts read ${bytes(found.read)} of it.`, found.data ? ` Data: ${found.data}.` : ""),
    h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "the same training by"), h("th", { class: "n" }, "would move"), h("th", { class: "n" }, "against hopping"), h("th", {}, h("span", { class: "hidden" }, "as a bar")))), h("tbody", {}, found.communication.slice(0, METHODS).map(({ name, formula, bytes: count }, index) => {
      const bar = h("i", { class: index ? "" : "own" });
      bar.style.width = `${Math.max(0.5, (100 * count) / most)}%`;
      return h("tr", {}, h("td", { "data-tip": formula }, name), h("td", { class: "n" }, bytes(count)), h("td", { class: "n" }, own ? `${number(count / own)}×` : "–"), h("td", { class: "track-cell" }, h("span", { class: "track" }, bar)));
    })))),
    h("p", { class: "soft" }, "By the formulas of Table 2 of the Cerebro paper (VLDB 2020), with this run's numbers."));
}

function recipe() {
  const { spec } = section("run");
  if (!spec) return;
  const again = `cerebro run ${run}.yaml --run-id ${run}-again`;
  const fact = ([name, value]) => [h("dt", {}, name), h("dd", {}, h("code", {}, value))];
  $("recipe-body").replaceChildren(
    h("p", {}, "The recipe with all its defaults. Modules and relative paths start from ", h("code", {}, spec.root), "."),
    h("details", { open: spec.recipe.length < 2500 }, h("summary", {}, `${run}.yaml`), h("pre", { tabindex: 0 }, spec.recipe)),
    h("p", {}, "The same training again:"), h("div", { class: "command" }, h("pre", {}, again), copy(again)),
    h("dl", {}, [["seed", String(spec.seed)], ["recipe", spec.digest], ["data", spec.dataDigest ? `${spec.dataDigest} at ${spec.data}` : spec.data], ["states", spec.storage], ["version", spec.version], ...Object.entries(spec.code)].filter(([, value]) => value).flatMap(fact)));
}

const copy = (text) => h("button", { type: "button", onclick: async (event) => { try { await navigator.clipboard.writeText(text); event.target.textContent = "Copied"; } catch { event.target.textContent = "Select and copy it"; } } }, "Copy");

// Draw soon what is in sight, and now and then what is not: people search the page, and readers read it aloud.
function lazily(id, sections, draw, pause = 0, away = 4000) {
  let [seen, stale, due] = [false, true, 0];
  const go = () => { clearTimeout(due); due = 0; if (stale) { stale = false; draw(); } };
  new IntersectionObserver(([entry]) => { seen = entry.isIntersecting; if (seen) go(); }, { rootMargin: "300px" }).observe($(id));
  on(sections, () => { stale = true; if (!due && (seen || away)) due = setTimeout(go, seen ? pause : away); });
}

export function start() {
  on("run nodes shares configs", () => { tiles(); notice(); });
  setInterval(() => { if (live() && !document.hidden) tiles(); }, 1000);
  lazily("node-table", "nodes shares", nodeTable, 200);
  lazily("health", "run nodes shares", health, 500);
  lazily("space", "run paths selection", space, 500);
  lazily("importances", "configs", importances, 3000, 0);
  lazily("traffic", "run", traffic, 500);
  lazily("recipe", "run", recipe);
  on("focus", () => {
    const svg = $("coordinates");
    svg?.classList.toggle("dim", focused() !== null);
    for (const line of svg?.querySelectorAll("polyline") ?? []) line.classList.toggle("strong", line.dataset.config === focused());
  });
}
