// The page of one config, over that of its run: curves, visits, failures, and who has asked what. Its address is that
// of the run with #config=ID.

import { clock, h, hparams, number, plural } from "./dom.js";
import { on, section } from "./stream.js";
import { base, body, spans, summary } from "./model.js";
import { chart } from "./curves.js";
import { ASK, TEXT, actionButton, neverLive, say, show, whyNot } from "./dialogs.js";
import { spent } from "./gantt.js";
import { showLog } from "./logs.js";

const MOST_CURVES = 6;
const MOST_VISITS = 500;
const STEPS_PAUSE = 3000;
let opened = null;

const address = (config) => `#config=${encodeURIComponent(config)}`;

export function openConfig(config) {
  if (location.hash === address(config)) follow();
  else location.hash = address(config);
}

// The config that the address names.
function named() {
  try { return decodeURIComponent(/^#config=(.+)$/.exec(location.hash)?.[1] ?? ""); } catch { return ""; }
}

function follow() {
  const config = named();
  if (opened && opened.config !== config) opened.dialog.close();
  if (config && opened?.config !== config && section("configs")[config]) open(config);
}

function statusText(row) {
  return row.reason ? `${row.status}: ${row.reason}` : row.on ? `live, ${row.saving ? "saved by" : row.queued ? "next on" : "on"} ${row.on}` : row.status;
}

function facts(config, row) {
  const values = [["status", row.status === "failed" ? "failed" : statusText(row)], [summary()?.objective?.[0] ?? "best", row.best === null ? "no value yet" : `${row.text || number(row.best)} at epoch ${row.at}`],
    ["in words", row.spread], ["trainings", row.members && h("span", {}, row.members.flatMap((name) => [h("a", { href: address(name) }, name), ` ${number(section("configs")[name]?.best ?? null)} `]))], ["training of", row.memberOf && h("a", { href: address(row.memberOf) }, row.memberOf)],
    ["epochs done", String(row.epoch)], ["clone of", row.parent && h("a", { href: address(row.parent) }, row.parent)], ["last metrics", hparams(row.metrics) || null], ...Object.entries(row.hparams).map(([name, value]) => [name, number(value)])];
  return h("dl", {}, values.filter(([, value]) => value !== null && value !== undefined).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

// Why the config has failed, and the attempts that failed before, the last one first.
function failures(row, story) {
  const attempts = [...(story.failures ?? [])].reverse();
  const box = (text, where, fault, whole) => h("div", { class: `story${fault ? " fault" : ""}` }, text, where ? h("small", {}, `\n${where}`) : null, whole ? h("details", {}, h("summary", {}, "The whole message"), whole) : null);
  const texts = attempts.map(({ text, kind, node, unit, final, story: whole }) => box(text, `${kind} on ${node}, in ${unit}`, final, whole));
  if (row.status === "failed" && !attempts.some(({ final }) => final)) texts.unshift(box(story.why, "", true, row.reason.length > story.why.length ? row.reason : null));
  return texts.length ? [h("h3", {}, row.status === "failed" ? "Why it has failed" : "Failed attempts"), ...texts] : [];
}

function decisions(story) {
  const began = summary()?.began;
  const rows = (story.decisions ?? []).map(({ what, why, by, at }) => h("tr", {}, h("td", { class: "n narrow" }, at === null || !began ? "before the first unit" : `about ${clock(at - began)}`), h("td", { class: "whole" }, what), h("td", { class: "whole" }, by), h("td", { class: "wide" }, why)));
  return rows.length ? [h("h3", {}, "What was decided"), scroller("What was decided about the config", table(["when", "what", "by", "why"], rows))] : [];
}

function curves(config, steps) {
  const found = section("curves")[config] ?? {};
  const names = [...new Set([...Object.keys(found), ...Object.keys(steps ?? {})])].sort((a, b) => (b === summary()?.objective?.[0]) - (a === summary()?.objective?.[0]) || (a < b ? -1 : 1));
  const figures = names.slice(0, MOST_CURVES).map((name) => {
    const [byEpoch, byStep] = [found[name] ?? [], steps?.[name] ?? []];
    return byStep.length > byEpoch.length ? chart(name, byStep, "step") : chart(name, byEpoch, "epoch");
  });
  const metric = summary()?.objective?.[0];
  const members = section("configs")[config]?.members ?? [];
  figures.push(...members.map((name) => [name, section("curves")[name]?.[metric] ?? []]).filter(([, points]) => points.length).map(([name, points]) => chart(`${metric} of ${name}`, points, "epoch")));
  const more = Math.max(0, names.length - MOST_CURVES);
  return figures.length ? [h("h3", {}, "Curves"), h("div", { class: "small-curves" }, figures), more ? h("p", { class: "soft" }, `and ${plural(more, "other metric")}, in the charts of the run.`) : ""] : [];
}

function visits(own) {
  const began = summary()?.began ?? 0;
  if (!own.length) return section("run").together ? [h("p", { class: "soft" }, "The run has so many visits that this report shows them together.")] : [];
  const rows = own.slice(-MOST_VISITS).map((visit) => h("tr", {}, [String(visit.epoch), `${visit.phase === "evaluate" ? "evaluation " : ""}${visit.partition}`].map((text) => h("td", { class: "n" }, text)), h("td", { class: "whole" }, visit.node), h("td", { class: "n" }, clock(visit.begin - began)), h("td", { class: "whole" }, spent(visit))));
  return [h("h3", {}, own.length > rows.length ? `The last ${rows.length} of ${own.length} visits` : plural(own.length, "visit")), scroller("The config's visits", table(["epoch", "partition", "node", "began", "took"], rows, [0, 1, 3]))];
}

const scroller = (label, inside) => h("div", { class: "scroll low", tabindex: 0, role: "region", "aria-label": label }, inside);
const table = (heads, rows, numeric = []) => h("table", {}, h("thead", {}, h("tr", {}, heads.map((title, index) => h("th", { scope: "col", class: numeric.includes(index) ? "n" : null }, title)))), h("tbody", {}, rows));

function buttons(config, row, dialog) {
  const reasons = body.report ? [] : Object.keys(ASK).map((action) => [action, whyNot(action, row)]);
  const general = body.report ? null : neverLive();
  const others = reasons.filter(([, why]) => why && why !== general);
  const logs = () => { dialog.close(); showLog(`config ${config}`); };
  return [
    h("p", { class: "buttons" }, reasons.map(([action, why]) => actionButton(TEXT[action], why, () => { dialog.close(); ASK[action](config, row); })),
      body.report ? null : h("button", { type: "button", onclick: logs }, "Logs"),
      h("button", { type: "button", class: "main", onclick: () => dialog.close() }, "Close")),
    general ? h("p", { class: "soft" }, `Not possible now: ${general}.`) : "",
    others.length ? h("ul", { class: "soft reasons" }, others.map(([action, why]) => h("li", {}, `${TEXT[action]}: ${why}.`))) : ""];
}

function open(config) {
  const parts = ["facts", "failures", "curves", "decisions", "visits", "buttons"].map(() => h("div"));
  const dialog = h("dialog", { "aria-labelledby": "config-title", class: "config" }, h("h2", { id: "config-title" }, config), parts);
  const drawn = [];
  const own = { config, dialog, steps: null, asked: "", at: 0 };
  own.draw = () => {
    const row = section("configs")[config];
    if (!row) return dialog.close();
    const story = section("stories")[config] ?? {};
    const visited = spans().filter((span) => span.config === config || row.members?.includes(span.config));
    const focused = dialog.contains(document.activeElement) ? document.activeElement.textContent : "";
    const causes = [row, [row, story], [section("curves")[config], own.steps], story.decisions, visited, [row, neverLive()]];
    const makers = [() => [facts(config, row)], () => failures(row, story), () => curves(config, own.steps), () => decisions(story), () => visits(visited), () => buttons(config, row, dialog)];
    makers.forEach((make, index) => {
      const shape = JSON.stringify(causes[index] ?? null);
      if (drawn[index] === shape) return;
      drawn[index] = shape;
      parts[index].replaceChildren(...make());
    });
    if (focused && !dialog.contains(document.activeElement)) [...parts.at(-1).querySelectorAll("button")].find((button) => button.textContent === focused)?.focus();
    return readSteps(own, `${visited.length}`);
  };
  opened = own;
  dialog.addEventListener("close", () => {
    if (opened === own) opened = null;
    if (location.hash === address(config)) history.pushState(null, "", location.pathname + location.search);
  });
  own.draw();
  show(dialog);
  dialog.querySelector(".main")?.focus();
  dialog.scrollTop = 0;
}

// What the config has logged by step, read again when it has made another visit.
async function readSteps(own, visited) {
  if (body.report || own.asked === visited || Date.now() - own.at < STEPS_PAUSE) return;
  [own.asked, own.at] = [visited, Date.now()];
  try {
    own.steps = (await (await fetch(`${base}/steps?config=${encodeURIComponent(own.config)}`)).json()).metrics ?? null;
  } catch { own.asked = ""; }
  if (own === opened) own.draw();
}

export function start() {
  addEventListener("hashchange", follow);
  let missing = false;
  on("configs run curves spans stories", () => {
    if (opened) opened.draw();
    else follow();
    const state = section("run").connection?.state ?? (body.report ? "record" : "reading");
    if (!missing && !opened && named() && state !== "reading") { missing = true; say(`This run has no config ${named()}.`); }
  });
}
