// The frame: where the reader is, the tabs of a run, one view at a time, and news of runs that
// grow.

import { api, watch, ApiError } from "./api.js";
import { h, link, notice, replace } from "./dom.js";
import { fileTitle } from "./format.js";
import { parse, to } from "./router.js";
import * as compare from "./compare.js";
import * as curves from "./curves.js";
import * as episode from "./episode.js";
import * as group from "./group.js";
import * as notes from "./notes.js";
import * as play from "./play.js";
import * as reports from "./reports.js";
import * as run from "./run.js";
import * as runs from "./runs.js";
import * as search from "./search.js";
import * as step from "./step.js";
import * as timeline from "./timeline.js";
import * as tokens from "./tokens.js";

const VIEWS = {
  compare,
  curves,
  episode,
  group,
  notes,
  play,
  reports,
  run,
  runs,
  search,
  step,
  timeline,
  tokens,
};
const TABS = [
  ["run", "Overview", (id) => to.run(id)],
  ["curves", "Curves", (id) => to.curves(id)],
  ["search", "Episodes", (id) => to.search(id)],
  ["timeline", "Timeline", (id) => to.timeline(id)],
  ["reports", "Reports", (id) => to.reports(id)],
  ["notes", "Notes", (id) => to.notes(id)],
  ["play", "Play", (id) => to.play(id)],
];
const OPENED_FROM = { step: "search", episode: "search", tokens: "search", group: "search" };

const main = document.getElementById("main");
const live = document.getElementById("live");
let current = { controller: new AbortController(), view: null, route: null };

/** Show what the address names; `again` keeps the reader's place, for news of the same view. */
async function navigate(again = false) {
  const route = parse(location.hash);
  current.controller.abort();
  current.view?.leave?.();
  const controller = new AbortController();
  current = { controller, view: null, route };
  replace(live);
  frame(route);
  const scrolled = window.scrollY;
  // Most views are there before a sign of loading would be.
  const waiting = setTimeout(() => replace(main, loading()), again ? 2000 : 150);
  try {
    const module = VIEWS[route.view];
    if (!module) throw new ApiError("This address names no view; go back to all runs.", 404);
    const shown = await module.show(route, controller.signal);
    if (controller.signal.aborted) return; // the reader has gone elsewhere
    current.view = shown;
    document.title = `${shown.title} · turnwise`;
    replace(main, shown.element);
    shown.shown?.();
    window.scrollTo(0, again ? scrolled : 0);
    if (!again && document.activeElement !== document.body) main.focus({ preventScroll: true });
  } catch (error) {
    if (controller.signal.aborted) return;
    if (!(error instanceof ApiError)) console.error(error);
    document.title = "Not shown · turnwise";
    replace(
      main,
      h("h1.unseen", "Not shown"),
      notice("This cannot be shown", error.message, "error", h("p", link(to.runs(), "All runs"))),
    );
  } finally {
    clearTimeout(waiting);
  }
}

function loading() {
  return h("div.loading", { role: "status" }, h("span.unseen", "Loading"), h("i"), h("i"), h("i"));
}

function frame(route) {
  const crumbs = [link(to.runs(), { class: "mark" }, "turnwise")];
  if (route.run !== undefined) crumbs.push(link(to.run(route.run), { id: "run-name" }, route.run));
  if (["step", "episode", "tokens", "group"].includes(route.view)) {
    crumbs.push(link(to.step(route.run, route.parts[0]), fileTitle(route.parts[0])));
  }
  if (route.view === "episode" || route.view === "tokens") {
    crumbs.push(
      link(to.episode(route.run, route.parts[0], route.parts[1]), `Episode ${route.parts[1]}`),
    );
  }
  replace(
    document.getElementById("crumbs"),
    crumbs.map((crumb) => h("li", crumb)),
  );
  const tabs = document.getElementById("tabs");
  tabs.hidden = route.run === undefined;
  const open = OPENED_FROM[route.view] ?? route.view;
  replace(
    tabs,
    tabs.hidden
      ? []
      : TABS.map(([view, title, address]) =>
          link(address(route.run), { "aria-current": view === open ? "page" : null }, title),
        ),
  );
  if (route.run !== undefined) nameRun(route.run);
}

const names = new Map();

/** The run's name in place of its id, as soon as it is known. */
async function nameRun(id) {
  if (!names.has(id)) {
    const data = await api.runs().catch(() => ({ runs: [] }));
    for (const one of data.runs) names.set(String(one.id), one.name);
  }
  const place = document.getElementById("run-name");
  if (place && current.route?.run === id) place.textContent = names.get(id) ?? id;
}

/** Runs have grown: views that are lists are drawn again, others offer it. */
function changed(ids) {
  const { route, view } = current;
  if (!view || (route.run !== undefined && !ids.map(String).includes(route.run))) return;
  if (view.live) navigate(true);
  else
    replace(
      live,
      h(
        "button.quiet",
        { type: "button", onclick: () => navigate(true) },
        "The run has grown: show it",
      ),
    );
}

/** One letter leads to a view, wherever no text is being written. */
function shortcut(event) {
  if (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    event.target.closest("input, textarea, select")
  )
    return;
  const { route } = current;
  const places = { r: to.runs() };
  if (route?.run !== undefined) {
    Object.assign(places, {
      o: to.run(route.run),
      c: to.curves(route.run),
      e: to.search(route.run),
      t: to.timeline(route.run),
    });
    if (event.key === "/") places["/"] = to.search(route.run);
  }
  const place = places[event.key] ?? current.view?.keys?.[event.key];
  if (typeof place === "function") place();
  else if (place) location.hash = place.slice(1);
  if (place) event.preventDefault();
}

window.addEventListener("hashchange", () => navigate());
document.addEventListener("keydown", shortcut);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address after `#` is the view's
  main.focus();
});
navigate();
watch(changed);
