// The picture of the hops: nodes with their partitions stand still, models move between them.

import { $, bytes, clock, h, plural } from "./dom.js";
import { now, on, section } from "./stream.js";
import { colour, focus, focused, live, spans, summary } from "./model.js";
import { openConfig } from "./config.js";

const MOST_AT_REST = 40;
const MOST_SQUARES = 64;
const UNIT_SECONDS = 1.2;
const [SHORTEST, LONGEST] = [20, 600];
let nodes = [];
let visits = [];
let discs = new Map();
let playing = null;
let moment = null;

const layer = h("div", { class: "models" });
const boxes = h("div", { class: "boxes" });

// Which partitions lie where, and a box for each node.
function build() {
  const natural = new Intl.Collator("en", { numeric: true });
  const names = [...new Set([...Object.keys(section("nodes")), ...(live() ? [] : [...Object.keys(section("shares")), ...visits.map((visit) => visit.node)])])].sort(natural.compare);
  const homes = new Map(names.map((name) => [name, []]));
  for (const [partition, owners] of Object.entries(section("run").homes ?? {})) for (const owner of owners) homes.get(owner)?.push(Number(partition));
  if (!live()) for (const visit of visits) { const list = homes.get(visit.node); if (list && visit.phase === "train" && !list.includes(visit.partition)) list.push(visit.partition); }
  const shape = JSON.stringify([names, [...homes.values()]]);
  if (shape === boxes.dataset.shape) return;
  boxes.dataset.shape = shape;
  nodes = names;
  boxes.replaceChildren(...names.map((name) => {
    const list = homes.get(name).sort((a, b) => a - b);
    const squares = list.slice(0, MOST_SQUARES).map((partition) => h("span", { class: "partition", "data-partition": partition, "data-tip": `partition ${partition} stays on ${name}` }, String(partition)));
    return h("div", { class: "node", "data-node": name }, h("p", { class: "name", "data-tip": name }, name), h("div", { class: "partitions" }, squares, list.length > MOST_SQUARES ? h("small", {}, `+${list.length - MOST_SQUARES}`) : null), h("div", { class: "dock" }), h("p", { class: "doing" }));
  }));
  boxes.classList.toggle("many", names.length > 16);
}

// Where each model is: in training on a node's partition, or at rest on the node that has its state.
function placesNow() {
  const found = new Map();
  for (const [name, node] of Object.entries(section("nodes"))) {
    if (node.unit) found.set(node.unit.config, { node: name, partition: node.unit.partition, began: node.unit.began, expected: node.unit.expected, from: node.unit.from, running: true });
  }
  for (const [config, row] of Object.entries(section("configs"))) if (!found.has(config) && row.last && row.status === "live") found.set(config, { node: row.last });
  return found;
}

function placesAt(time) {
  const found = new Map();
  for (const visit of visits) {
    if (visit.begin > time) break;
    found.set(visit.config, visit.end >= time ? { node: visit.node, partition: visit.partition, running: true, began: visit.begin, expected: visit.end - visit.begin } : { node: visit.node });
  }
  return found;
}

function draw() {
  if (!$("stage").isConnected) return;
  const time = moment;
  const replay = time !== null;
  const places = replay ? placesAt(time) : live() ? placesNow() : placesAt(Infinity);
  const clockNow = replay ? time : now();
  const frame = layer.getBoundingClientRect();
  const box = new Map([...boxes.children].map((element) => [element.dataset.node, element]));
  const resting = new Map();
  const wanted = new Map();
  const few = places.size <= MOST_AT_REST;
  for (const [config, at] of places) {
    const element = box.get(at.node);
    if (!element) continue;
    if (!at.running) {
      resting.set(at.node, (resting.get(at.node) ?? 0) + 1);
      if (!few && !discs.has(config)) continue;
      if (!few) { wanted.set(config, { ...spot(element.querySelector(".dock"), frame, 0), away: true, at }); continue; }
      wanted.set(config, { ...spot(element.querySelector(".dock"), frame, resting.get(at.node) - 1), at });
      continue;
    }
    const square = element.querySelector(`[data-partition="${at.partition}"]`) ?? element.querySelector(".dock");
    wanted.set(config, { ...spot(square, frame), at });
  }
  for (const [config, disc] of discs) if (!wanted.has(config)) { disc.remove(); discs.delete(config); }
  for (const [config, target] of wanted) place(config, target, box, frame, clockNow);
  for (const [name, element] of box) {
    const unit = section("nodes")[name];
    const count = resting.get(name) ?? 0;
    const runs = [...places].filter(([, at]) => at.running && at.node === name).map(([config]) => config);
    const state = replay || !live() ? "" : unit?.stalled ? "stalled" : unit?.quarantined ? "quarantined" : unit?.leaving ? "leaving" : unit?.starting ? "starting" : "";
    element.querySelector(".doing").textContent = [state, runs.length ? `trains ${runs.join(", ")}` : replay || live() ? "idle" : "", !few && count ? `${count} rest` : ""].filter(Boolean).join(" · ");
    element.classList.toggle("busy", runs.length > 0);
  }
  $("stage").setAttribute("aria-label", `${plural(box.size, "node")}; ${[...box].map(([name, element]) => `${name} ${element.querySelector(".doing").textContent}`).slice(0, 20).join("; ")}`);
}

function spot(element, frame, index) {
  const at = element.getBoundingClientRect();
  if (index === undefined) return { x: at.left - frame.left + at.width / 2, y: at.top - frame.top + at.height / 2 };
  const across = Math.max(1, Math.floor(at.width / 20));
  return { x: at.left - frame.left + 10 + (index % across) * 20, y: at.top - frame.top + 10 + (Math.floor(index / across) % 2) * 14 };
}

function place(config, target, box, frame, time) {
  let disc = discs.get(config);
  const { at } = target;
  if (!disc) {
    disc = h("button", { type: "button", class: "disc", tabindex: -1, onclick: () => openConfig(config), onpointerenter: () => focus(config), onpointerleave: () => focus(null) }, h("span", {}, config.replace(/^c0*(?=\d)/, "")));
    const from = at.from && box.get(at.from);
    const start = from ? spot(from.querySelector(".dock"), frame, 0) : target;
    disc.style.transform = `translate(${start.x}px, ${start.y}px)`;
    layer.append(disc);
    discs.set(config, disc);
    disc.getBoundingClientRect(); // so that it moves from there
  }
  disc.className = `disc ${colour(config)}${at.running ? " running" : ""}${target.away ? " away" : ""}${focused() === config ? " pointed" : ""}`;
  disc.style.transform = `translate(${target.x.toFixed(1)}px, ${target.y.toFixed(1)}px)`;
  const share = at.running && at.expected ? Math.min(1, Math.max(0, (time - at.began) / at.expected)) : at.running ? 0.5 : 0;
  disc.style.setProperty("--done", `${(100 * share).toFixed(0)}%`);
  disc.dataset.tip = at.running ? `${config} trains on partition ${at.partition} of ${at.node}` : `${config} rests on ${at.node}`;
}

function collect() {
  visits = spans().sort((a, b) => a.begin - b.begin);
  const over = !live() && visits.length > 0;
  $("player").hidden = !over;
  if (!over) stop();
  else if (moment === null) $("moment-text").textContent = clock(bounds()[1] - bounds()[0]);
}

const bounds = () => [visits[0].begin, visits.reduce((end, visit) => Math.max(end, visit.end), 0)];

// So many seconds that a usual unit can be followed by eye.
function playSeconds() {
  const [begin, end] = bounds();
  const usual = visits.map((visit) => visit.end - visit.begin).sort((a, b) => a - b)[visits.length >> 1] || 1;
  return Math.min(LONGEST, Math.max(SHORTEST, (UNIT_SECONDS * (end - begin)) / usual));
}

function seek(share) {
  const [begin, end] = bounds();
  moment = share >= 1 ? null : begin + share * (end - begin);
  $("moment").value = String(Math.round(1000 * share));
  $("moment-text").textContent = `${clock(share * (end - begin))} of ${clock(end - begin)}`;
  draw();
}

function stop() {
  cancelAnimationFrame(playing?.frame ?? 0);
  playing = null;
  $("play").textContent = "Play the run";
}

function play() {
  if (playing) return stop();
  const at = Number($("moment").value) / 1000;
  const seconds = playSeconds();
  playing = { since: performance.now() - 1000 * seconds * (at >= 1 ? 0 : at), frame: 0 };
  $("play").textContent = "Pause";
  const step = () => {
    const share = (performance.now() - playing.since) / (1000 * seconds);
    seek(Math.min(1, share));
    if (share < 1) playing.frame = requestAnimationFrame(step);
    else stop();
  };
  return step();
}

export function start() {
  $("stage").append(boxes, layer, h("p", { class: "empty", id: "no-nodes" }, "No node has joined yet."));
  let due = 0;
  const soon = () => { if (!due) due = setTimeout(() => { due = 0; collect(); build(); $("no-nodes").hidden = nodes.length > 0; draw(); }, 120); };
  on("nodes spans shares run configs selection", soon);
  on("focus", () => { for (const [config, disc] of discs) disc.classList.toggle("pointed", focused() === config); });
  $("play").addEventListener("click", play);
  $("moment").addEventListener("input", () => { stop(); seek(Number($("moment").value) / 1000); });
  new ResizeObserver(() => { if (nodes.length) draw(); }).observe($("stage"));
  setInterval(() => { if (live() && !document.hidden) draw(); }, 500);
}

export const moved = () => { const traffic = section("run").traffic; return traffic ? `${plural(traffic.hops, "hop")}, ${bytes(traffic.hopped)}` : summary() ? "none yet" : "–"; };
