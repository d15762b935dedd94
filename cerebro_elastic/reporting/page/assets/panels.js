// The parts of the page that are words and tables: tiles, leaderboard's files, nodes, health, bytes, environment, recipe.

import { $, bytes, clock, h, hparams, number, percent, plural } from "./dom.js";
import { now, on, section } from "./stream.js";
import { base, body, colour, lazily, live, ranking, run, summary } from "./model.js";
import { actionButton, askToDrain, whyNot } from "./dialogs.js";
import { moved } from "./hops.js";

const PAPER = "https://www.vldb.org/pvldb/vol13/p2159-nakandala.pdf";

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
    all.live ? tile(all.left === null ? "–" : clock(all.left), "to go, about", "how long the rest takes if nodes and configs stay as they are") : tile(moved().split(", ")[1] ?? "–", section("run").traffic ? `moved in ${moved().split(",")[0]}` : "moved"),
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
  state.textContent = all.live ? "live" : reading ? "reading" : all.outcome ? "ended" : "not running";
  state.className = `badge ${all.live ? "on" : all.outcome || reading ? "" : "warn"}`;
  const stands = !body.report ? "" : ` The run ${all.outcome ? "has ended" : "had not ended when this was written"} (${section("report").written}).`;
  $("what").textContent = `${plural(configs, "config")} by Model Hopper Parallelism over ${plural(all.partitions, "partition")}, up to ${plural(all.epochs, "epoch")}.${stands}`;
  if (!body.report) document.title = `${all.live ? `${Math.floor((100 * done) / (total || 1))} % ` : ""}${run}: cerebro`;
}

function notice() {
  const connection = section("run").connection;
  const all = summary();
  const element = $("notice");
  const text = connection?.state === "lost" ? `The run cannot be read at this moment: ${connection.why}. What is shown is what was known before.`
    : connection?.state === "reading" ? "The record is being read. What is shown is how the run stood earlier."
    : body.report ? section("report").notes?.map((note) => `Note: ${note}`).join("\n")
    : all && !all.live && !all.outcome ? "Nobody runs the run at this moment. Start it again as before: it continues from where it stopped."
    : all?.live && !all.leader ? "No controller leads the run at this moment. Units continue; the next one takes over."
    : "";
  element.textContent = text;
  element.hidden = !text;
}

// The tables as CSV: a report brings them, a server makes them.
function files() {
  const link = (name, what) => {
    const text = section("tables")[name];
    return h("a", { download: `${run}-${name}.csv`, href: text === undefined ? `${base}/${name}.csv` : URL.createObjectURL(new Blob([text], { type: "text/csv" })) }, what);
  };
  $("files").replaceChildren("As CSV: ", link("leaderboard", "leaderboard"), ", ", link("metrics", "metrics of all epochs"), ".");
}

// With several objectives: the configs that no other one surpasses in all of them.
function front() {
  const found = section("run").front;
  if (!found) { $("front").replaceChildren(); return; }
  const rows = found.rows.map((row) => h("tr", {}, h("td", { class: "whole" }, row.config), row.values.map((value) => h("td", { class: "n" }, number(value))), h("td", {}, hparams(section("configs")[row.config]?.hparams ?? {}))));
  $("front").replaceChildren(
    h("h3", {}, "Front"),
    h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "config"), found.objectives.map(([metric, mode]) => h("th", { scope: "col", class: "n" }, `${metric} (${mode})`)), h("th", { scope: "col" }, "hyper-parameters"))), h("tbody", {}, rows))),
    h("p", { class: "soft" }, "No other config is as good in all of these and better in one. The values are those of each config's best epoch."));
}

// What the winners have reached on rows that no unit has read.
function tests() {
  const found = section("run").tests ?? [];
  if (!found.length) { $("tests").replaceChildren(); return; }
  const names = [...new Set(found.flatMap((row) => Object.keys(row.metrics)))].sort();
  const rows = found.map((row) => h("tr", {}, h("td", { class: "whole" }, row.config), h("td", { class: "n" }, String(row.epoch)), names.map((name) => h("td", { class: "n" }, row.metrics[name] ?? "–")), h("td", {}, row.measured)));
  $("tests").replaceChildren(
    h("h3", {}, "Test set"),
    h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "config"), ["epoch", ...names].map((title) => h("th", { scope: "col", class: "n" }, title)), h("th", { scope: "col" }, "measured"))), h("tbody", {}, rows))),
    h("p", { class: "soft" }, `${found.at(-1).rows ? `Over ${plural(found.at(-1).rows, "row")} that no unit, search or stopping rule has read. ` : ""}In brackets: the 95 % interval by bootstrap over rows, where a metric is a mean over rows.`));
}

const WORDS = { hopping: "hops", profiling: "profiles", quarantined: "quarantine" };
const word = (part) => WORDS[part] ?? part;

function nodeTable() {
  const registered = section("nodes");
  const shares = section("shares");
  const names = [...new Set([...Object.keys(registered), ...Object.keys(shares)])].sort(new Intl.Collator("en", { numeric: true }).compare);
  const again = document.activeElement?.dataset?.drain;
  if (!names.length) { $("node-table").replaceChildren(); return; }
  const all = Object.values(shares);
  const spentOn = ["training", "hopping", "profiling", "lost", "quarantined", "idle"].filter((part) => ["training", "hopping", "lost", "idle"].includes(part) || all.some((share) => share[part] > 0));
  const there = live() || Object.keys(registered).length > 0;
  const rows = names.map((name) => {
    const [node, share] = [registered[name], shares[name]];
    const doing = !node ? "not there" : node.stalled ? `stalled: ${node.stalled}` : node.quarantined ? `quarantined: ${node.quarantined}` : node.unit ? `${node.unit.config} epoch ${node.unit.epoch}, partition ${node.unit.partition}${node.unit.strategy ? ` by ${node.unit.strategy}` : ""}` : node.starting ? "starting" : "idle";
    const drain = !node ? null : actionButton(node.leaving ? "leaves" : "Let it leave", whyNot("drain", node), () => askToDrain(name, node));
    if (drain) drain.dataset.drain = name;
    const bar = share && h("span", { class: "shares", role: "img", "aria-label": spentOn.map((part) => `${word(part)} ${percent(share[part] / share.present)}`).join(", ") }, spentOn.slice(0, -1).map((part) => { const i = h("i", { class: part, "data-tip": `${name}: ${word(part)} ${share[part].toFixed(1)} s, ${percent(share[part] / share.present)}` }); i.style.width = `${(100 * share[part]) / (share.present || 1)}%`; return i; }));
    return h("tr", { class: node?.stalled || node?.quarantined ? "fault" : null },
      h("td", { class: "whole" }, name), h("td", { class: "whole" }, (node ?? share).host), h("td", { class: "whole" }, (node ?? share).hardware), there ? h("td", { class: "wide" }, doing, node?.saves ? h("small", {}, ` saves ${node.saves}`) : null) : null, there ? h("td", { class: "whole" }, node?.takes || "–") : null,
      h("td", { class: "n" }, share ? String(share.visits) : "–"), ["present", ...spentOn].map((part) => h("td", { class: "n" }, share ? `${share[part].toFixed(1)} s` : "–")), h("td", {}, bar), there ? h("td", {}, drain) : null);
  });
  $("node-table").replaceChildren(
    h("table", {}, h("thead", {}, h("tr", {}, ["node", "host", "hardware", ...(there ? ["now", "takes"] : [])].map((title) => h("th", { scope: "col" }, title)), ["units", "there", ...spentOn.map(word)].map((title) => h("th", { scope: "col", class: "n" }, title)), h("th", { scope: "col" }, "its time"), there ? h("th", { scope: "col" }, h("span", { class: "hidden" }, "actions")) : null)), h("tbody", {}, rows)),
    h("p", { class: "soft" }, spentOn.map((part) => [h("i", { class: `key ${part}` }), ` ${part === "hopping" ? "hops: loading a state before a unit, or waiting for its partition, saving and committing it after" : word(part)} `]).flat(), "(seconds from the first unit's begin to the last unit's end)"));
  if (again !== undefined) [...$("node-table").querySelectorAll("[data-drain]")].find((button) => button.dataset.drain === again)?.focus();
}

const duration = (seconds) => (seconds < 120 ? `${seconds.toFixed(1)} s` : clock(seconds));

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
  const ends = all.live && all.left !== null ? `, and end in about ${clock(all.left)}, around ${new Date(Date.now() + 1000 * all.left).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })}` : "";
  const forecast = all.gap && h("li", { id: "gap" }, `${all.outcome ? "The run took" : "By what is known so far the run will take"} ${duration(all.gap[0])}${ends}. With the seconds that its units took in training, each where it was, no order of them would have been done before ${duration(all.gap[1])}: without hops, waits and lost work it would be ${(1 + all.gap[2]).toFixed(2)} times as fast (an optimality gap of ${percent(all.gap[2])}).`);
  $("health-body").replaceChildren(
    ...(trouble.length ? trouble : [h("p", { class: "good" }, found.faults ? "Nothing is wrong at this moment." : "Nothing has gone wrong.")]),
    h("ul", {},
      forecast,
      all.budget && h("li", { id: "budget" }, `${all.budget[0].toUpperCase()}${all.budget.slice(1)}.`),
      share === null ? null : h("li", {}, `${percent(share)} of the nodes' time was idle.`),
      spec?.storage ? h("li", {}, "States are kept at ", h("code", {}, spec.storage), ".") : null,
      all.live ? h("li", {}, all.leader ? `${all.leader} leads the run.` : "No controller leads the run at this moment.") : null),
    ...(found.marks.length ? [h("h3", {}, "What happened"), h("div", { class: "scroll events" }, h("table", {}, h("tbody", {}, [...found.marks].reverse().map(({ at, text, fault }) => h("tr", { class: fault ? "fault" : null }, h("td", { class: "n narrow" }, `about ${duration(at - began)}`), h("td", {}, text)))))), found.earlier ? h("p", { class: "soft" }, `and ${found.earlier} before.`) : null].filter(Boolean) : []));
}

function dataset(found) {
  if (found.dataset !== null) return `The dataset has ${bytes(found.dataset)}; the hosts read ${bytes(found.read)} of it, each partition once${found.limited ? ", and again what their caches had dropped" : ""}.`;
  if (found.indexed) return "The rows stay in the user's dataset, of which a run does not know the bytes: methods that copy it are left out.";
  return `The dataset${section("run").spec?.data ? ` at ${section("run").spec.data}` : ""} is out of reach from here, so methods that copy it are left out.`;
}

function traffic() {
  const { traffic: found } = section("run");
  const place = $("traffic-body");
  if (!found) { place.replaceChildren(h("p", { class: "empty" }, "Nothing was moved yet.")); return; }
  const own = found.communication[0]?.bytes || 0;
  const most = Math.max(...found.communication.map((cost) => cost.bytes), 1);
  const rows = found.communication.map(({ name, formula, bytes: count }, index) => {
    const bar = h("i", { class: index ? "" : "own" });
    bar.style.width = `${Math.max(0.5, (100 * count) / most)}%`;
    return h("tr", {}, h("td", {}, name), h("td", {}, formula), h("td", { class: "n" }, bytes(count)), h("td", { class: "n" }, own ? `${number(count / own)}×` : "–"), h("td", { class: "track-cell" }, h("span", { class: "track" }, bar)));
  });
  place.replaceChildren(
    h("p", {}, `${plural(found.hops, "hop")} brought ${bytes(found.hopped)} of states to the nodes that trained on; ${found.stays} times a config went on where it was. ${bytes(found.written)} of states were written. ${dataset(found)}${found.data ? ` Data: ${found.data}.` : ""}`),
    h("div", { class: "scroll" }, table(["the same training by", ["bytes (", h("a", { href: PAPER }, "Cerebro, VLDB 2020"), ", Table 2)"], ["would move"], ["against hopping"], h("span", { class: "hidden" }, "as a bar")], rows, [2, 3])),
    h("p", { class: "soft" }, `With this run's numbers: k epochs of |S| configs on p partitions, m the size of a config's state, ⟨D⟩ the dataset, ⌈|D|/bp⌉ the batches of a unit; full copies go to the ${plural(Object.keys(section("shares")).length, "node")}. A state holds the optimizer's slots, too: the last three rows are upper bounds for methods that exchange weights or gradients alone.`));
}

// A table; the columns of these numbers are of numbers.
function table(heads, rows, numeric = []) {
  return h("table", {}, h("thead", {}, h("tr", {}, heads.map((title, index) => h("th", { scope: "col", class: numeric.includes(index) ? "n" : null }, title)))), h("tbody", {}, rows));
}

function strategies() {
  const found = section("run").strategies ?? [];
  const rows = found.map(({ config, strategy, hardware, seconds, bytes: most, refusal, used }) => h("tr", {}, h("td", {}, h("i", { class: `swatch ${colour(config)}` }), config), h("td", {}, strategy), h("td", {}, hardware), h("td", { class: "n" }, seconds === null ? "–" : `${number(seconds)} s`), h("td", { class: "n" }, seconds === null ? "–" : bytes(most)), h("td", {}, refusal ?? (used ? "fastest" : seconds === null ? "not profiled" : ""))));
  $("strategies").replaceChildren(...(rows.length ? [h("h3", {}, "How strategies did"), h("div", { class: "scroll" }, table(["config", "strategy", "hardware", "a unit takes", "memory of a rank", ""], rows, [3, 4]))] : []));
}

function environment() {
  const { versions } = section("report");
  const rows = Object.entries(section("shares")).map(([name, node]) => h("tr", {}, [name, node.host, node.hardware, node.devices.join(", "), String(node.ranks), node.version || section("run").spec?.version].map((text, index) => h("td", { class: index === 4 ? "n" : "whole" }, text ?? ""))));
  $("environment-body").replaceChildren(
    rows.length ? h("div", { class: "scroll" }, table(["node", "host", "hardware", "devices", "ranks", "cerebro-elastic"], rows, [4])) : h("p", { class: "empty" }, "No node has joined yet."),
    versions ? h("p", {}, `Where this was written: ${Object.entries(versions).map((pair) => pair.join(" ")).join(", ")}.`) : "");
}

function recipe() {
  const { spec } = section("run");
  if (!spec) return;
  const { exactness, record } = section("report");
  const commands = [[`cerebro run ${run}.yaml --run-id ${run}-again`, "the same training, in another order"], [`cerebro verify ${run}`, "the recorded history against the invariants"], [`cerebro replay ${run} --config ${ranking()[0] ?? "best"}`, "one config again, bit for bit"]];
  const fact = ([name, value]) => [h("dt", {}, name), h("dd", {}, h("code", {}, value))];
  $("recipe-body").replaceChildren(
    h("p", {}, "The recipe with all its defaults. Modules and relative paths start from ", h("code", {}, spec.root), "."),
    h("details", { open: spec.recipe.length < 2500 }, h("summary", {}, `${run}.yaml`), h("pre", { tabindex: 0 }, spec.recipe)),
    h("p", {}, "In a terminal:"),
    ...commands.map(([command, what]) => [h("p", {}, `${what[0].toUpperCase()}${what.slice(1)}:`), h("div", { class: "command" }, h("pre", {}, command), copy(command))]).flat(),
    h("dl", {}, [["seed", String(spec.seed)], ["recipe", spec.digest], ["data", spec.dataDigest ? `${spec.dataDigest} at ${spec.data}` : spec.data], ["states", spec.storage], ["version", spec.version], ...Object.entries(spec.code), ["exactness", exactness], ["record", record && `${record.digest} at revision ${record.revision}: note it, and it proves later that the record up to here is unchanged`]].filter(([, value]) => value).flatMap(fact)));
}

const copy = (text) => h("button", { type: "button", onclick: async (event) => { try { await navigator.clipboard.writeText(text); event.target.textContent = "Copied"; } catch { event.target.textContent = "Select and copy it"; } } }, "Copy");

export function start() {
  on("run nodes shares configs", () => { tiles(); notice(); });
  setInterval(() => { if (live() && !document.hidden) tiles(); }, 1000);
  on("tables", files);
  if (!body.report) files();
  lazily("front", "run configs", front, 1000);
  lazily("tests", "run", tests, 1000);
  lazily("node-table", "nodes shares", nodeTable, 200);
  lazily("strategies", "run selection", strategies, 1000);
  lazily("health", "run nodes shares", health, 500);
  lazily("traffic", "run shares", traffic, 500);
  lazily("environment", "run shares", environment, 1000);
  lazily("recipe", "run", recipe);
}
