// Starts the page: that of all runs, that of one, or the report of one, which brings its board.

import { $ } from "./dom.js";
import { connect, take } from "./stream.js";
import * as config from "./config.js";
import * as curves from "./curves.js";
import * as gantt from "./gantt.js";
import * as hops from "./hops.js";
import * as leaderboard from "./leaderboard.js";
import * as logs from "./logs.js";
import * as overview from "./overview.js";
import * as panels from "./panels.js";
import * as runActions from "./run_actions.js";
import * as space from "./space.js";

const { run } = document.body.dataset;

function say(state) {
  const badge = $("connection");
  badge.textContent = state === "connected" ? "" : "the server is out of reach; trying again";
  badge.hidden = state === "connected";
  badge.className = "badge warn";
}

const board = $("board-of-report");
const shown = [config, leaderboard, curves, hops, gantt, panels, space];
const parts = board ? shown : run ? [...shown, runActions, logs] : [overview];
for (const part of parts) part.start();
if (board) JSON.parse(board.textContent).forEach(take);
else connect(run ? `/run/${encodeURIComponent(run)}/events` : "/events", say);
