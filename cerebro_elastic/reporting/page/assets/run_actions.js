// What people may ask of the run as a whole: end it, extend it, add a point to its search.

import { $, h, plural } from "./dom.js";
import { on, section } from "./stream.js";
import { body, configs, live, ranking, run, summary } from "./model.js";
import { actionButton, changedHparams, confirm, hparamFields, neverLive, reasonOf, whyField } from "./dialogs.js";

const count = (status) => summary()?.configs?.[status] ?? 0;

function askToEnd() {
  const units = summary().busy;
  confirm("stop", `End ${run}?`, [
    `${plural(count("live"), "live config")} are stopped, and so are those that the search would still propose. ${units ? `${plural(units, "unit")} under way do not count. ` : ""}All that was committed stays.`,
    "The run then ends. It can be extended later, by the configs that you name.",
  ], whyField(), `End ${run}`, (of) => ({ all: true, ...reasonOf(of) }));
}

function template() {
  return ranking()[0] ?? Object.keys(configs())[0];
}

function askToAdd() {
  const config = template();
  const { hparams } = section("configs")[config];
  const inputs = hparamFields(hparams);
  confirm("add", "Add a config?", [`A new config is trained from scratch with these hyper-parameters, which are those of ${config} until you change them. The search continues as it is. The record says that the config was cloned from ${config}.`],
    h("div", { class: "fields" }, inputs), "Add it", () => ({ like: config, hparams: changedHparams(inputs) }));
}

function askToExtend() {
  const { epochs } = summary();
  const wish = (name, label, attributes) => h("label", {}, `${label} `, h("input", { name, inputmode: "numeric", pattern: "[0-9]*", ...attributes }));
  const whole = (input) => (input.value.trim() ? Number(input.value) : null);
  const where = body.etcd ? "Its hosts have to be started again, each with its command of before." : "It continues at once, on the machine of this page.";
  confirm("extend", `Extend ${run}?`, [
    `Each config has had ${plural(epochs, "epoch")}. Those that continue begin from their checkpoints, as if the run had been that long from the start. ${where}`,
    "Before anything is changed the page checks, for some seconds, whether a schedule or the search depends on the number of epochs. If one does, its name is said and nothing happens.",
  ], h("div", { class: "fields" }, wish("epochs", "Epochs of each config in all", { value: 2 * epochs }), wish("num", "Configs of the search in all", { placeholder: "as many as now" }),
    wish("top", "Only so many of the best continue", { placeholder: "all" }), h("label", {}, "Or only these configs ", h("input", { name: "configs", placeholder: "c0001 c0004", spellcheck: "false" }))), "Extend",
  (of) => ({ epochs: whole(of.epochs), num: whole(of.num), top: whole(of.top), configs: of.configs.value.split(/[\s,]+/).filter(Boolean) }));
}

function whyNotExtend() {
  if (body.readOnly) return "this page is read-only";
  return summary()?.outcome ? null : "the run has not ended";
}

const BUTTONS = [
  ["Add a config", () => neverLive() ?? (template() ? null : "the run has no config yet"), askToAdd],
  ["End the run", neverLive, askToEnd],
  ["Extend the run", whyNotExtend, askToExtend],
];

export function start() {
  let shape = "";
  on("run configs", () => {
    const reasons = BUTTONS.map(([, whyNot]) => whyNot());
    if (shape === JSON.stringify(reasons)) return;
    shape = JSON.stringify(reasons);
    $("run-actions").replaceChildren(...BUTTONS.map(([text, , ask], index) => actionButton(text, reasons[index], ask)));
  });
}
