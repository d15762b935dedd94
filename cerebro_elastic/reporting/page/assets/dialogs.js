// What people may ask of a run: a confirmation says what will happen, or why it is not possible.

import { $, clock, h, number } from "./dom.js";
import { section } from "./stream.js";
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
  resume: (row) => neverLive() ?? (row.status === "stopped" ? null : `it is ${row.status}: only a stopped config can continue`),
  retry: (row) => (body.readOnly ? "this page is read-only" : row.status !== "failed" ? `it is ${row.status}: only a failed one can be tried again` : live() || summary()?.outcome ? null : "the run is not live"),
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
export function say(text) {
  const place = $("said");
  place.textContent = text;
  place.hidden = false;
  clearTimeout(timer);
  timer = setTimeout(() => { place.hidden = true; }, 8000 + 60 * text.length);
}

const UNRECORDED = ["drain", "export"]; // the record names nobody for these

// Where a browser refuses storage to another site's frame (a notebook's at localhost), the name lasts as long as the page.
function storedName() {
  try { return localStorage.getItem(NAME); } catch { return null; }
}

let person = storedName() ?? body.person;

function rememberName(name) {
  person = name;
  try { localStorage.setItem(NAME, name); } catch { /* refused */ }
}

function nameField(action) {
  if (UNRECORDED.includes(action)) return "";
  if (body.known) return h("p", { class: "soft" }, `The record will name ${body.person}.`);
  return h("label", {}, "Your name, for the record ", h("input", { name: "by", maxlength: 80, autocomplete: "name", value: person, placeholder: "nobody" }));
}

// Ask before something is done: the sentences say what will happen.
export function confirm(action, title, sentences, fields, label, values) {
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const progress = h("p", { class: "soft doing", role: "status", hidden: true }, h("progress", { "aria-label": title }), h("span"));
  const form = h("form", { method: "dialog" },
    h("h2", { id: "asked" }, title), sentences.map((text) => h("p", {}, text)), fields, nameField(action), problem, progress,
    h("p", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), h("button", { type: "submit", class: "main" }, label)));
  const dialog = h("dialog", { "aria-labelledby": "asked" }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const by = form.elements.by?.value ?? "";
    if (form.elements.by) rememberName(by);
    const button = form.querySelector(".main");
    button.disabled = true;
    problem.hidden = true;
    const since = Date.now();
    const watch = setInterval(() => { progress.hidden = false; progress.lastChild.textContent = ` ${label}: ${clock((Date.now() - since) / 1000)} so far. It continues if you close this.`; }, 1000);
    try {
      say(await send(action, { by, ...values(form.elements) }));
      dialog.close();
    } catch (error) {
      problem.textContent = error instanceof TypeError ? "The server is out of reach: is it still running?" : error.message;
      problem.hidden = false;
      button.disabled = false;
      if (!dialog.open) say(`${label}: ${problem.textContent}`);
    } finally {
      clearInterval(watch);
      progress.hidden = true;
    }
  });
  show(dialog);
}

// Where the focus was before the first of the dialogs that are open.
let origin = null;

// Gives the focus back to an element, or to what has taken its place: tables are drawn anew during a run.
function returning(element) {
  const row = element.closest("tr[data-config]");
  const { drain } = element.dataset;
  const anew = () => (row ? document.querySelector(`#board tr[data-config="${CSS.escape(row.dataset.config)}"]`)
    : drain ? document.querySelector(`[data-drain="${CSS.escape(drain)}"]`)
    : [...document.querySelectorAll("#run-actions button")].find((button) => button.textContent === element.textContent));
  return () => (element.isConnected ? element : anew() ?? $("board")).focus({ preventScroll: true });
}

export function show(dialog) {
  origin ??= document.activeElement && returning(document.activeElement);
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (document.querySelector("dialog[open]")) return;
    origin?.();
    origin = null;
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.body.append(dialog);
  dialog.showModal();
}

// The reason, if the person gives one.
export const reasonOf = (of) => (of.reason.value.trim() ? { reason: of.reason.value } : {});

export const whyField = () => h("label", {}, "Why ", h("input", { name: "reason", maxlength: 400, placeholder: "for the record" }));

function askToStop(config, row) {
  const unit = row.on && !row.queued ? ` The unit that it is in on ${row.on} does not count.` : "";
  confirm("stop", `Stop ${config}?`, [`${config} gets no more units.${unit} All that it has committed stays, and it can be resumed. The search leaves it alone from then on.`],
    whyField(), `Stop ${config}`, (of) => ({ config, ...reasonOf(of) }));
}

function askToResume(config, row) {
  confirm("resume", `Resume ${config}?`, [`${config} continues in epoch ${row.epoch + 1} and is trained to its end. The search does not stop it again.`],
    whyField(), `Resume ${config}`, (of) => ({ config, ...reasonOf(of) }));
}

function askToRetry(config, row) {
  confirm("retry", `Try ${config} again?`, [`${config} continues in epoch ${row.epoch + 1}, from its last checkpoint or from the start, and its tries count anew. In a run that has ended this is done with the code as it is now; a live one continues with the code that it has started with.`],
    null, `Try ${config} again`, () => ({ configs: [config] }));
}

// A field for each hyper-parameter: a list of its choices, or what is typed.
export function hparamFields(hparams) {
  const choices = section("run").spec?.choices ?? {};
  return Object.entries(hparams).map(([name, value]) => {
    const listed = choices[name] ?? (typeof value === "boolean" ? [true, false] : null);
    const texts = listed && [...new Set([value, ...listed].map((each) => JSON.stringify(each)))].sort((a, b) => listed.findIndex((each) => JSON.stringify(each) === a) - listed.findIndex((each) => JSON.stringify(each) === b));
    const field = listed
      ? h("select", { "data-name": name, "data-before": JSON.stringify(value) }, texts.map((text) => h("option", { value: text, selected: text === JSON.stringify(value) }, number(JSON.parse(text)))))
      : h("input", { "data-name": name, "data-before": number(value), value: number(value), spellcheck: "false", autocomplete: "off" });
    return h("label", {}, h("span", { "data-tip": name.length > 14 ? name : null }, name), field);
  });
}

// What a person has changed in such fields, as text.
export function changedHparams(fields) {
  const inputs = fields.map((label) => label.querySelector("[data-name]"));
  return Object.fromEntries(inputs.filter((input) => input.value !== input.dataset.before).map((input) => [input.dataset.name, input.value]));
}

function askToClone(config, row) {
  const inputs = hparamFields(row.hparams);
  const starts = h("fieldset", {}, h("legend", {}, "It begins"),
    choice("here", `with the present state of ${config}`, true), choice("best", `with the state of the best epoch of ${config}`), choice("scratch", "from scratch"));
  confirm("add", `Clone ${config}?`, [`A new config is added to the run: a copy of ${config} with the hyper-parameters that you change here. ${config} continues.`],
    [h("div", { class: "fields" }, inputs), starts], "Clone", (of) => ({ like: config, hparams: changedHparams(inputs), start: of.start.value }));
}

function askToExport(config, row) {
  const epoch = row.at === null ? "its last full epoch, as it has no value of the objective" : `epoch ${row.at}, its best,`;
  confirm("export", `Export ${config}?`, [`The model behind ${epoch} is written to the folder "exports" of the run, on the machine of this page: weights, model card and record. Nothing of the run changes, so its history does not name it.`],
    null, `Export ${config}`, () => ({ config }));
}

const choice = (value, text, checked = false) => h("label", { class: "choice" }, h("input", { type: "radio", name: "start", value, checked }), ` ${text}`);

export function askToDrain(node, row) {
  const unit = row.unit ? ` It finishes its unit of ${row.unit.config} first.` : "";
  confirm("drain", `Let ${node} leave?`, [`${node} gets no more units, and leaves the run.${unit} Its partitions go to other nodes. Nothing that was trained is lost.`],
    null, `Let ${node} leave`, () => ({ node }));
}

export const ASK = { stop: askToStop, resume: askToResume, retry: askToRetry, clone: askToClone, export: askToExport };
export const TEXT = { stop: "Stop", resume: "Resume", retry: "Try again", clone: "Clone", export: "Export" };

// A button, or the reason why there is nothing to press.
export function actionButton(text, why, act) {
  return h("button", { type: "button", "aria-disabled": why ? "true" : null, title: why ?? null, onclick: () => { if (!why) act(); else say(`Not possible: ${why}.`); } }, text);
}
