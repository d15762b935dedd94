// The last lines that a node has logged, or that name a config.

import { $, h } from "./dom.js";
import { on, section } from "./stream.js";
import { base, live } from "./model.js";

let known = "";
let seen = false;
let busy = false;

function choices(logs) {
  const configs = Object.keys(section("configs"));
  const shape = JSON.stringify([logs, configs.length]);
  if (shape === known) return;
  known = shape;
  const before = $("log-of").value;
  const option = (value, text) => h("option", { value, selected: value === before }, text);
  $("log-of").replaceChildren(
    h("optgroup", { label: "Nodes and processes" }, logs.map((name) => option(`node ${name}`, name))),
    h("optgroup", { label: "Lines that name a config" }, configs.map((name) => option(`config ${name}`, name))));
  if (!before && logs.length) $("log-of").value = `node ${logs.find((name) => name.startsWith("node")) ?? logs[0]}`;
}

async function read() {
  if (busy) return;
  busy = true;
  const [kind, ...rest] = $("log-of").value.split(" ");
  const query = kind ? `?${kind}=${encodeURIComponent(rest.join(" "))}` : "";
  const place = $("log-lines");
  try {
    const answer = await (await fetch(`${base}/logs${query}`)).json();
    const first = !known;
    choices(answer.logs);
    const bottom = place.scrollTop + place.clientHeight >= place.scrollHeight - 40;
    const none = answer.logs.length ? "no lines" : `This machine has no logs of the run (${answer.folder}): look on the machines of its nodes.`;
    const text = answer.lines.join("\n") || none;
    if (place.textContent !== text) { place.textContent = text; if (bottom) place.scrollTop = place.scrollHeight; }
    $("log-where").textContent = answer.logs.length ? `in ${answer.folder}` : "";
    if (first && answer.logs.length) { busy = false; return read(); }
  } catch {
    place.textContent = "The server is out of reach.";
  }
  busy = false;
  return undefined;
}

// Show a log, or the lines that name a config, whether or not it was offered yet.
export function showLog(value) {
  const offered = $("log-of");
  if (![...offered.options].some((option) => option.value === value)) offered.append(h("option", { value }, value));
  offered.value = value;
  offered.dispatchEvent(new Event("change"));
  $("logs").scrollIntoView();
}

export function start() {
  $("log-of").addEventListener("change", () => { $("log-lines").textContent = ""; read(); });
  $("log-again").addEventListener("click", read);
  new IntersectionObserver(([entry]) => { seen = entry.isIntersecting; if (seen) read(); }).observe($("logs"));
  on("configs", () => { if (seen && known) choices(JSON.parse(known)[0]); });
  setInterval(() => { if (live() && seen && !document.hidden) read(); }, 3000);
}
