// Starts the page: that of all runs, or that of one.

import { $ } from "./dom.js";
import { connect } from "./stream.js";

const { run } = document.body.dataset;

function say(state) {
  const badge = $("connection");
  badge.textContent = state === "connected" ? "" : "the server is out of reach; trying again";
  badge.hidden = state === "connected";
  badge.className = "badge warn";
}

const parts = run
  ? await Promise.all(["leaderboard", "curves", "hops", "gantt", "panels", "slices", "run_actions", "logs"].map((name) => import(`./${name}.js`)))
  : [await import("./overview.js")];
for (const part of parts) part.start();
connect(run ? `/run/${encodeURIComponent(run)}/events` : "/events", say);
