// What the server says about the runs: sections of values by key, kept up to date by server-sent events.

export const data = {};
export const section = (name) => data[name] ?? {};

const listeners = [];
let changed = new Set();
let last = "";
let source = null;
let offset = 0;
let heard = 0;

// Seconds since 1970 by the server's clock.
export const now = () => Date.now() / 1000 + offset;

// Call `draw` after changes of one of these sections (separated by spaces), at most once a frame.
export function on(sections, draw) { listeners.push([sections.split(" "), draw]); }

function flush() {
  const sections = changed;
  changed = new Set();
  for (const [of, draw] of listeners) if (of.some((name) => sections.has(name))) draw();
}

export function touch(name) {
  if (!changed.size) requestAnimationFrame(flush);
  changed.add(name);
}

export function take(change) {
  for (const [name, values] of Object.entries(change)) {
    const known = (data[name] ??= {});
    for (const [key, value] of Object.entries(values)) {
      if (value === null) delete known[key];
      else known[key] = value;
    }
    touch(name);
  }
}

export function connect(url, say) {
  const open = () => {
    source?.close();
    source = new EventSource(last ? `${url}?after=${last}` : url);
    source.addEventListener("begin", (event) => {
      const { fresh, now: server } = JSON.parse(event.data);
      offset = server - Date.now() / 1000;
      heard = Date.now();
      if (fresh) for (const name of Object.keys(data)) { data[name] = {}; touch(name); }
      say("connected");
    });
    source.addEventListener("alive", () => { heard = Date.now(); });
    source.addEventListener("message", (event) => { heard = Date.now(); last = event.lastEventId; take(JSON.parse(event.data)); });
    source.addEventListener("error", () => say("cut off"));
  };
  // A browser gives a site six connections: a page that nobody sees has none. One that stays silent is dead.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { source?.close(); source = null; } else open();
  });
  setInterval(() => {
    if (!document.hidden && (source === null || source.readyState === EventSource.CLOSED || Date.now() - heard > 25000)) {
      heard = Date.now();
      say("cut off");
      open();
    }
  }, 2000);
  open();
}
