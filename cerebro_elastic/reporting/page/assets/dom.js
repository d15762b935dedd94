// Makes elements, and texts as people read them. Text from a run only ever becomes textContent.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const $ = (id) => document.getElementById(id);

// Four digits of a number that is not whole, and of one whose other digits are zeros; anything else as it is.
export function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return typeof value === "string" ? value : JSON.stringify(value);
  if (Number.isInteger(value) && Math.abs(value) < (value % 1000 ? 1e15 : 1e6)) return String(value);
  const text = value.toPrecision(4);
  return text.includes("e") ? text.replace(/\.?0+e/, "e") : text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

export function bytes(count) {
  if (count === null || count === undefined) return "–";
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (count >= 999.5 && unit < units.length - 1) { count /= 1000; unit += 1; }
  return `${Number(count.toPrecision(3))} ${units[unit]}`;
}

export function clock(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const whole = Math.max(0, Math.round(seconds));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (n) => String(n).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

export const percent = (share) => (Number.isFinite(share) ? `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %` : "–");
export const hparams = (values) => Object.entries(values).map(([name, value]) => `${name}=${number(value)}`).join(" ");
export const cut = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);
export const plural = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

const tip = () => $("tip");

export function showTip(text, x, y) {
  const element = tip();
  element.hidden = !text;
  if (!text) return;
  element.textContent = text;
  const own = element.getBoundingClientRect();
  element.style.left = `${Math.max(8, Math.min(x + 12, innerWidth - own.width - 8))}px`;
  element.style.top = `${y > own.height + 20 ? y - own.height - 12 : y + 20}px`;
}

document.addEventListener("pointerover", (event) => {
  const target = event.target.closest?.("[data-tip]");
  if (target) showTip(target.dataset.tip, event.clientX, event.clientY);
  else if (!event.target.closest?.("[data-own-tip]")) showTip("");
});
document.addEventListener("focusin", (event) => {
  const target = event.target.closest?.("[data-tip]");
  const at = event.target.getBoundingClientRect();
  showTip(target?.dataset.tip ?? "", at.left, at.top);
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape") showTip(""); });
