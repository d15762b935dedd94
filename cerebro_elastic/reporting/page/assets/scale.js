// From values to places on a chart, and the marks along an axis.

import { number } from "./dom.js";

const FEW = 6;
// How many times the least value the highest must be for an axis to be logarithmic, unless values were drawn so.
const DECADES = 30;
// Where the least other value lies on an axis that is logarithmic but for its 0.
const NOUGHT = 0.16;

// Maps values to places from `start` to `end`; values outside the range are placed at the nearer end.
export function scale(low, high, start, end, log) {
  const level = log ? (v) => Math.log10(Math.max(v, low)) : (v) => v / 2; // half of it, so that no difference overflows
  const [a, b] = [level(low), level(high)];
  return (v) => { const share = b > a ? (level(v) - a) / (b - a) : 0.5; return start + Math.min(Math.max(share, 0), 1) * (end - start); };
}

// Whether a range is better seen by its logarithm.
export const wide = (low, high) => low > 0 && high / low >= 100;

// Marks at round numbers between two values, about `count` of them.
export function ticks(low, high, log, count = 5) {
  const span = high - low;
  if (!Number.isFinite(span) || span <= 1e-9 * Math.max(Math.abs(low), Math.abs(high))) return [low];
  if (log) {
    const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
    const step = Math.max(1, Math.floor((last - first) / count));
    const powers = [];
    for (let power = first; power <= last; power += step) powers.push(10 ** power);
    if (powers.length > 1) return powers;
  }
  const power = 10 ** Math.floor(Math.log10(span / count));
  const step = [1, 2, 5, 10].map((by) => by * power).find((by) => span / by <= count) ?? power;
  const marks = [];
  for (let i = Math.ceil(low / step - 1e-6); i <= Math.floor(high / step + 1e-6); i += 1) marks.push(i * step);
  return marks;
}

// A mark's text: neighbours may differ in their last digits only.
export const markText = (value) => String(Number(value.toPrecision(10)));

// Where values lie from 0 to 1, and the marks. Numbers lie at their values: by the logarithm if they were drawn so
// (`log`), or if that is not known (`undefined`) and they span decades; a 0 lies below such an axis. Other values
// lie at even steps.
export function axis(values, log) {
  if (!values.every((value) => typeof value === "number")) return steps(values.map(number));
  const own = [...new Set(values)].sort((one, other) => one - other);
  const [low, high] = [own[0], own.at(-1)];
  const least = own.find((value) => value > 0) ?? 0;
  const logarithmic = low >= 0 && least > 0 && (log ?? high / least >= DECADES);
  const nought = logarithmic && low === 0;
  const begin = logarithmic ? least : low;
  const place = scale(begin, high, nought ? NOUGHT : 0, 1, logarithmic);
  const share = (value) => (nought && value === 0 ? 0 : place(value));
  const marks = own.length <= FEW ? own.map((value) => [value, number(value)])
    : [...(nought ? [[0, "0"]] : []), ...ticks(begin, high, logarithmic).map((value) => [value, markText(value)])];
  return { share, marks: marks.map(([value, text]) => [share(value), text]), log: logarithmic };
}

function steps(texts) {
  const names = [...new Set(texts)].sort();
  const at = (text) => (names.length > 1 ? names.indexOf(text) / (names.length - 1) : 0.5);
  return { share: (value) => at(number(value)), marks: names.map((name) => [at(name), name]), log: false };
}

// The marks whose labels do not overlap, as they are `least` apart: the outermost two if they are far enough apart,
// and those that fit between them.
export function apart(marks, least) {
  const ordered = [...marks].sort(([one], [other]) => one - other);
  const shown = ordered.slice(0, 1);
  for (const mark of ordered.slice(1, -1)) if (mark[0] - shown.at(-1)[0] >= least && ordered.at(-1)[0] - mark[0] >= least) shown.push(mark);
  return [...shown, ...ordered.slice(1).slice(-1).filter(([at]) => at - shown.at(-1)[0] >= least)];
}
