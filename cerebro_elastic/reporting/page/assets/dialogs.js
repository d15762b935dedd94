// What people may ask of a run: a confirmation says what will happen, or why it is not possible.

import { $, h, hparams, number } from "./dom.js";
import { on, section } from "./stream.js";
import { base, body, live, summary } from "./model.js";

const token = document.querySelector('meta[name="cerebro-token"]')?.content;
const NAME = "cerebro-name";

// Why nothing can be asked of the run; null if something can.
export function neverLive() {
  if (body.readOnly) return "this page is read-only";
  if (!live()) return summary()?.outcome ? "the run has ended" : "the run is not live";
  return null;
}

const WHY_NOT = {
  stop: (row) => neverLive() ?? (row.status === "live" ? null : `it is ${row.status}: only a live config can be stopped`),
  resume: (row) => neverLive() ?? (row.status === "stopped" ? null : `it is ${row.status}: only a stopped config can go on`),
  clone: () => neverLive(),
  export: (row) => (body.readOnly ? "this page is read-only" : row.epoch === 0 ? "it has no full epoch behind it" : null),
  drain: (node) => neverLive() ?? (node.leaving ? "it leaves already" : null),
};

export const whyNot = (action, of) => WHY_NOT[action](of);

async function send(action, values) {
  const response = await fetch(`${base}/${action}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Cerebro-Token": token },
    body: JSON.stringify(values),
  });
  const answer = await response.json().catch(() => ({ problem: `the server has answered ${response.status}` }));
  if (!response.ok) throw new Error(answer.problem ?? `the server has answered ${response.status}`);
  return answer.said;
}

let timer = 0;
function say(text) {
  const place = $("said");
  place.textContent = text;
  place.hidden = false;
  clearTimeout(timer);
  timer = setTimeout(() => { place.hidden = true; }, 8000);
}

const UNRECORDED = ["drain", "export"]; // the record names nobody for these

function nameField(action) {
  if (UNRECORDED.includes(action)) return "";
  if (body.known) return h("p", { class: "soft" }, `The record will name ${body.person}.`);
  return h("label", {}, "Your name, for the record ", h("input", { name: "by", maxlength: 80, autocomplete: "name", value: localStorage.getItem(NAME) ?? body.person, placeholder: "nobody" }));
}

// Ask before something is done: the sentences say what will happen.
export function confirm(action, title, sentences, fields, label, values) {
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const form = h("form", { method: "dialog" },
    h("h2", { id: "asked" }, title), sentences.map((text) => h("p", {}, text)), fields, nameField(action), problem,
    h("p", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), h("button", { type: "submit", class: "main" }, label)));
  const dialog = h("dialog", { "aria-labelledby": "asked" }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const by = form.elements.by?.value ?? "";
    if (form.elements.by) localStorage.setItem(NAME, by);
    const button = form.querySelector(".main");
    button.disabled = true;
    try {
      say(await send(action, { by, ...values(form.elements) }));
      dialog.close();
    } catch (error) {
      problem.textContent = error instanceof TypeError ? "The server is out of reach: is it still running?" : error.message;
      problem.hidden = false;
      button.disabled = false;
    }
  });
  show(dialog);
}

function show(dialog) {
  const before = document.activeElement;
  dialog.addEventListener("close", () => { dialog.remove(); before?.focus?.({ preventScroll: true }); });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.body.append(dialog);
  dialog.showModal();
}

export const whyField = () => h("label", {}, "Why ", h("input", { name: "why", maxlength: 400, placeholder: "for the record" }));

function askToStop(config, row) {
  const unit = row.on && !row.queued ? ` The unit that it is in on ${row.on} does not count.` : "";
  confirm("stop", `Stop ${config}?`, [`${config} gets no more units.${unit} All that it has committed stays, and it can be resumed. The search leaves it alone from then on.`],
    whyField(), `Stop ${config}`, (of) => ({ config, why: of.why.value }));
}

function askToResume(config, row) {
  confirm("resume", `Resume ${config}?`, [`${config} goes on in epoch ${row.epoch + 1} and is trained to its end. The search does not stop it again.`],
    whyField(), `Resume ${config}`, (of) => ({ config, why: of.why.value }));
}

export function hparamFields(hparams) {
  return Object.entries(hparams).map(([name, value]) => h("label", {}, h("span", {}, name), h("input", { "data-name": name, value: number(value), spellcheck: "false", autocomplete: "off" })));
}

// What a person has changed in such fields, as text.
export function changedHparams(fields, hparams) {
  const inputs = fields.map((label) => label.querySelector("input"));
  return Object.fromEntries(inputs.filter((input) => input.value !== number(hparams[input.dataset.name])).map((input) => [input.dataset.name, input.value]));
}

function askToClone(config, row) {
  const inputs = hparamFields(row.hparams);
  const starts = h("fieldset", {}, h("legend", {}, "It begins"),
    choice("here", `with the present state of ${config}`, true), choice("best", `with the state of the best epoch of ${config}`), choice("scratch", "from scratch"));
  confirm("clone", `Clone ${config}?`, [`A new config is added to the run: a copy of ${config} with the hyper-parameters that you change here. ${config} goes on.`],
    [h("div", { class: "fields" }, inputs), starts], "Clone", (of) => ({ config, changes: changedHparams(inputs, row.hparams), start: of.start.value }));
}

function askToExport(config, row) {
  const epoch = row.at === null ? "its last full epoch, as it has no value of the objective" : `epoch ${row.at}, its best`;
  confirm("export", `Export ${config}?`, [`The model behind ${epoch}, is written to the folder "exports" of the run, on the machine of this page: weights, model card and record. Nothing of the run changes, so its history does not name it.`],
    null, `Export ${config}`, () => ({ config }));
}

const choice = (value, text, checked = false) => h("label", { class: "choice" }, h("input", { type: "radio", name: "start", value, checked }), ` ${text}`);

export function askToDrain(node, row) {
  const unit = row.unit ? ` It finishes its unit of ${row.unit.config} first.` : "";
  confirm("drain", `Let ${node} leave?`, [`${node} gets no more units, and leaves the run.${unit} Its partitions go to other nodes. Nothing that was trained is lost.`],
    null, `Let ${node} leave`, () => ({ node }));
}

const ASK = { stop: askToStop, resume: askToResume, clone: askToClone, export: askToExport };
const TEXT = { stop: "Stop", resume: "Resume", clone: "Clone", export: "Export" };

// A button, or the reason why there is nothing to press.
export function actionButton(text, why, act) {
  return h("button", { type: "button", "aria-disabled": why ? "true" : null, title: why ?? null, onclick: () => { if (!why) act(); else say(`Not possible: ${why}.`); } }, text);
}

export function openConfig(config) {
  const draw = () => {
    const row = section("configs")[config];
    if (!row) return dialog.close();
    const facts = [["status", row.reason ? `${row.status}: ${row.reason}` : row.on ? `${row.queued ? "next on" : "on"} ${row.on}` : row.status], [summary()?.objective?.[0] ?? "best", row.best === null ? "no value yet" : `${number(row.best)} at epoch ${row.at}`],
      ["epochs done", String(row.epoch)], ["clone of", row.parent], ["failed attempts", row.tries ? String(row.tries) : null],
      ["last metrics", hparams(row.metrics) || null], ...Object.entries(row.hparams).map(([name, value]) => [name, number(value)])];
    const reasons = body.report ? [] : Object.keys(ASK).map((action) => [action, whyNot(action, row)]);
    const general = body.report ? null : neverLive();
    const others = reasons.filter(([, why]) => why && why !== general);
    const focused = document.activeElement?.textContent;
    content.replaceChildren(
      h("h2", { id: "config-title" }, config),
      h("dl", {}, facts.filter(([, value]) => value !== null && value !== undefined).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
      h("p", { class: "buttons" }, reasons.map(([action, why]) => actionButton(TEXT[action], why, () => { dialog.close(); ASK[action](config, row); })),
        body.report ? null : h("button", { type: "button", onclick: () => { dialog.close(); $("log-of").value = `config ${config}`; $("log-of").dispatchEvent(new Event("change")); $("logs").scrollIntoView(); } }, "Logs"),
        h("button", { type: "button", class: "main", onclick: () => dialog.close() }, "Close")),
      general ? h("p", { class: "soft" }, `Not possible now: ${general}.`) : "",
      others.length ? h("ul", { class: "soft reasons" }, others.map(([action, why]) => h("li", {}, `${TEXT[action]}: ${why}.`))) : "");
    if (focused) [...content.querySelectorAll("button")].find((button) => button.textContent === focused)?.focus();
    return undefined;
  };
  const content = h("div");
  const dialog = h("dialog", { "aria-labelledby": "config-title", class: "config" }, content);
  opened = { dialog, draw };
  draw();
  show(dialog);
  dialog.querySelector(".main")?.focus();
}

let opened = null;
on("configs run", () => { if (opened?.dialog.open) opened.draw(); });
