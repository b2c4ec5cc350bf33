// All runs that were named on the command line, newest news first: how far, how good, what is
// wrong.

import { api } from "./api.js";
import { h, link, notice } from "./dom.js";
import { count, duration, moment } from "./format.js";
import { facts, interval, progress, rate, stateBadge } from "./marks.js";
import { to } from "./router.js";

const FIGURES = 6;

export async function show(route, signal) {
  const { runs } = await api.runs(signal);
  const chosen = new Set();
  const button = h(
    "button",
    {
      type: "button",
      disabled: true,
      onclick: () => {
        location.hash = to.compare([...chosen]).slice(1);
      },
    },
    "Compare",
  );
  const choose = (id, on) => {
    if (on) chosen.add(id);
    else chosen.delete(id);
    button.disabled = chosen.size < 2;
    button.textContent = chosen.size > 1 ? `Compare ${chosen.size} runs` : "Compare";
  };
  const element = h(
    "div",
    h("div.heading", h("h1", "Runs"), runs.length > 1 ? h("div.actions", button) : null),
    runs.length
      ? h(
          "ul.cards",
          runs.map((run) => card(run, runs.length > 1, choose)),
        )
      : notice("No runs here", "Start the viewer with a run folder: turnwise view runs/demo"),
  );
  return { title: "Runs", element, live: chosen.size === 0 };
}

function card(run, choosable, choose) {
  const readable = run.state !== "unreadable";
  const name = readable ? link(to.run(run.id), run.name) : h("span", run.name);
  const figures = (run.figures ?? []).slice(-FIGURES);
  return h(
    "li.card",
    h(
      "div.card-head",
      choosable && readable
        ? h("input", {
            type: "checkbox",
            "aria-label": `Compare ${run.name}`,
            onchange: (event) => choose(run.id, event.target.checked),
          })
        : null,
      h("h2", name),
      stateBadge(run.state),
    ),
    h("p.path", run.path),
    run.trouble ? h("p.trouble", run.trouble) : null,
    readable
      ? facts([
          [
            "Progress",
            run.steps_planned || run.steps_done
              ? progress(run.steps_done, run.steps_planned)
              : null,
          ],
          ["Started", moment(run.started)],
          ["Time", duration(run.seconds)],
          ["Kind", run.kind === "run" ? null : run.kind],
        ])
      : null,
    figures.length ? h("ul.figures", figures.map(figureLine)) : null,
  );
}

/** What to call runs beside each other, by id: names, or folders where several have one name. */
export function labels(runs) {
  const folder = (run) => (run.path ?? "").split("/").filter(Boolean).pop();
  const calls = [(run) => run.name, folder, (run) => run.path];
  const unique =
    calls.find((call) => new Set(runs.map(call)).size === runs.length) ?? ((run) => String(run.id));
  return new Map(runs.map((run) => [String(run.id), unique(run)]));
}

/** A figure as name, drawing, numbers. */
export function figureLine(figure) {
  return h(
    "li",
    h("span.figure-name", figure.name),
    interval(figure),
    h("span.figure-rate", rate(figure)),
    figure.n ? h("span.figure-count", count(figure.n, "episode")) : null,
  );
}
