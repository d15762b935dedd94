"use strict";
const tip = document.getElementById("tip");
const focus = document.getElementById("focus");

// Point at something: it says what it is, and its config is shown alone in the charts.
function point(target, x, y) {
  const told = target.closest("[data-tip]");
  tip.hidden = !told;
  if (told) {
    tip.textContent = told.dataset.tip;
    const own = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(x + 12, innerWidth - own.width - 8))}px`;
    tip.style.top = `${y > own.height + 20 ? y - own.height - 12 : y + 20}px`;
  }
  const config = target.closest("[data-config]")?.dataset.config;
  const rule = config === undefined ? "" : `svg [data-config]:not([data-config="${CSS.escape(config)}"]) { opacity: 0.12; }`;
  if (focus.textContent !== rule) focus.textContent = rule;
}
document.addEventListener("pointerover", (event) => point(event.target, event.clientX, event.clientY));
document.addEventListener("focusin", (event) => {
  const at = event.target.getBoundingClientRect();
  point(event.target, at.left, at.top);
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });

// Sort a table by a column: numbers by size, "-" and "" last.
function sort(heading) {
  const body = heading.closest("table").tBodies[0];
  const up = heading.ariaSort !== "ascending";
  for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
  heading.ariaSort = up ? "ascending" : "descending";
  const text = (row) => row.cells[heading.cellIndex].textContent.trim();
  const compare = (a, b) => {
    const [x, y] = [text(a), text(b)], [n, m] = [parseFloat(x), parseFloat(y)];
    if (Number.isNaN(n) !== Number.isNaN(m)) return Number.isNaN(n) ? 1 : -1;
    const order = Number.isNaN(n) ? x.localeCompare(y) : n - m;
    return up ? order : -order;
  };
  body.append(...[...body.rows].sort(compare));
}
for (const heading of document.querySelectorAll(".sortable th")) {
  heading.tabIndex = 0;
  heading.addEventListener("click", () => sort(heading));
  heading.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(heading); });
}

// Show one metric's curves, or all.
const metric = document.getElementById("metric");
metric?.addEventListener("change", () => {
  for (const group of document.querySelectorAll("[data-group]"))
    group.hidden = metric.value !== "" && group.dataset.group !== metric.value;
});

// Browsers refuse long data: URLs as downloads: a table is handed over as a file in memory.
for (const link of document.querySelectorAll("a[download]")) {
  link.addEventListener("click", () => {
    const text = decodeURIComponent(link.href.slice(link.href.indexOf(",") + 1));
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  }, { once: true });
}
