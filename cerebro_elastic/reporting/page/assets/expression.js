// The filter of the leaderboard: `lr < 0.01 and (act == relu or status != failed)`.

const TOKEN = /\s*(?:(<=|>=|==|!=|=|<|>|~|\(|\))|`([^`]*)`|"([^"]*)"|'([^']*)'|([^\s<>=!~()`"']+))/y;

function tokens(text) {
  const list = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.trimEnd().length) {
    const at = TOKEN.lastIndex;
    const match = TOKEN.exec(text);
    if (!match) throw new Error(`"${text.slice(at).trim()}" cannot be read`);
    const [, sign, name, double, single, word] = match;
    if (sign) list.push({ sign: sign === "=" ? "==" : sign });
    else if (name !== undefined) list.push({ name });
    else if (word === undefined) list.push({ value: double ?? single });
    else if (/^(and|or|not)$/i.test(word)) list.push({ sign: word.toLowerCase() });
    else list.push({ word });
  }
  return list;
}

const COMPARE = {
  "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
  "==": (a, b) => a === b, "!=": (a, b) => a !== b,
};

function compare(sign, left, right) {
  if (sign === "~") return String(left ?? "").toLowerCase().includes(String(right).toLowerCase());
  const known = left !== undefined && left !== null;
  if (!known) return sign === "!=";
  if (typeof left === "number" && typeof right === "string" && right.trim() !== "" && !Number.isNaN(Number(right))) right = Number(right);
  if (typeof left !== typeof right) [left, right] = [String(left), String(right)];
  return COMPARE[sign](left, right);
}

// A function from a row's values (`get(name)`) to whether it is shown. `knows(name)` says which names there are.
export function parse(text, knows) {
  const list = tokens(text);
  let at = 0;
  const accept = (sign) => (list[at]?.sign === sign ? list[at++] : null);
  const either = () => { let left = both(); while (accept("or")) { const [a, b] = [left, both()]; left = (get) => a(get) || b(get); } return left; };
  const both = () => { let left = one(); while (accept("and")) { const [a, b] = [left, one()]; left = (get) => a(get) && b(get); } return left; };
  const one = () => {
    if (accept("not")) { const inner = one(); return (get) => !inner(get); }
    if (accept("(")) {
      const inner = either();
      if (!accept(")")) throw new Error("a ) is missing");
      return inner;
    }
    const left = list[at++];
    const name = left?.name ?? left?.word;
    if (name === undefined) throw new Error("the name of a hyper-parameter or a metric is missing");
    if (!knows(name)) throw new Error(`no config has "${name}"`);
    const sign = list[at]?.sign;
    if (!(sign in COMPARE) && sign !== "~") throw new Error(`"${name}" needs a comparison: < <= > >= == != or ~ (contains)`);
    at += 1;
    const right = list[at++];
    if (right === undefined || right.sign) throw new Error(`"${name} ${sign}" needs a value`);
    const other = right.name ?? (right.word !== undefined && knows(right.word) ? right.word : undefined);
    if (other !== undefined) return (get) => compare(sign, get(name), get(other));
    const value = literal(right);
    return (get) => compare(sign, get(name), value);
  };
  const whole = either();
  if (at < list.length) throw new Error("and, or is missing between two comparisons");
  return whole;
}

function literal(token) {
  if (token.value !== undefined) return token.value;
  const known = { true: true, false: false };
  if (token.word in known) return known[token.word];
  const value = Number(token.word);
  return Number.isNaN(value) ? token.word : value;
}
