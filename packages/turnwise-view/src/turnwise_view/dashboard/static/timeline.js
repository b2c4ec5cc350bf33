// Who waited for whom within a step: lanes of the learner, the engine and the places of episodes,
// and tables of the same.

import { api } from "./api.js";
import { h, link, notice, replace, select, table } from "./dom.js";
import { duration, number } from "./format.js";
import { Lanes } from "./lanes.js";
import { to } from "./router.js";

const KINDS = {
  sampling: "Sampling: its request is with the engine",
  tools: "Tools",
  environment: "Environment resets",
  grading: "Verdict",
  episode: "The rest of an episode",
  requests: "The engine has requests",
  signals: "Signals",
  update: "Update",
  critic: "Critic",
  recording: "Records",
  validation: "Validation",
  weights: "New weights",
  checkpoint: "Checkpoint",
};
const ROWS = 300; // of a table

export async function show(route, signal) {
  const run = await api.run(route.run, signal);
  const steps = run.files.filter((file) => file.kind === "step").map((file) => file.step);
  const step = route.parts[0] ?? steps[steps.length - 1];
  const data =
    step === undefined
      ? { absent: "No step is done yet." }
      : await api.timeline(route.run, step, signal);
  const place = steps.indexOf(Number(step));
  const beside = (offset) =>
    place >= 0 && steps[place + offset] !== undefined
      ? to.timeline(route.run, steps[place + offset])
      : null;
  const facts = h("p.lane-facts", { role: "status" });
  const lanes = data.lanes
    ? new Lanes(data, laneName, (found) => tell(facts, route, data, found))
    : null;
  const element = h(
    "div",
    h(
      "div.heading",
      h("h1", step === undefined ? "Timeline" : `Timeline of step ${step}`),
      h(
        "div.actions",
        beside(-1) ? link(beside(-1), { class: "button quiet" }, "← Previous") : null,
        steps.length
          ? select(
              "Step",
              steps.map((one) => [String(one), String(one)]),
              String(step),
              (value) => {
                location.hash = to.timeline(route.run, value).slice(1);
              },
            )
          : null,
        beside(1) ? link(beside(1), { class: "button quiet" }, "Next →") : null,
      ),
    ),
    data.absent && !data.lanes ? notice("No timeline", data.absent, "empty") : null,
    data.absent && data.lanes ? h("p.quiet", data.absent) : null,
    lanes
      ? [legend(data), lanes.buttons(), lanes.box, facts, waits(data), totals(data), asTable(data)]
      : null,
  );
  return {
    title: `Timeline, ${run.name}`,
    element,
    keys: { "[": beside(-1), "]": beside(1) },
    shown: () => lanes?.draw(),
    leave: () => lanes?.leave(),
  };
}

function laneName(lane, short) {
  if (lane.slot) return `place ${lane.slot + 1}`;
  return short ? lane.process.replace(/ \(.*/, "") : lane.process;
}

function legend(data) {
  const { kind, seconds } = data.spans;
  const sums = data.kinds.map(() => 0);
  kind.forEach((one, index) => (sums[one] += seconds[index]));
  const entry = (name, title, sum) =>
    h(
      "li",
      h("span", { class: `swatch span-${name}`, "aria-hidden": "true" }),
      title,
      sum === null ? null : [" ", h("span.quiet", duration(sum))],
    );
  const known = Object.keys(KINDS).filter((name) => data.kinds.includes(name));
  return h(
    "ul.keys",
    known.map((name) =>
      entry(name, KINDS[name], name === "episode" ? null : sums[data.kinds.indexOf(name)]),
    ),
    data.waits.length ? entry("waiting", "Waits, dotted", null) : null,
    data.spans.step.some((one) => one !== data.step) ? h("li.quiet", "Pale: of other steps") : null,
  );
}

function tell(place, route, data, found) {
  if (!found) return replace(place, "");
  const { span, wait } = found;
  const where = (lane) => `${data.lanes[lane].process}, place ${data.lanes[lane].slot + 1}`;
  if (wait)
    return replace(
      place,
      h("strong", `Waits ${duration(wait.seconds)}. `),
      wait.reason,
      h("span.quiet", ` ${where(wait.lane)}`),
    );
  const { lane, kind, episode, step, start, seconds } = data.spans;
  const one = data.episodes[episode[span]];
  const name = data.kinds[kind[span]];
  replace(
    place,
    h("strong", `${KINDS[name] ?? name}: ${duration(seconds[span])}. `),
    `Step ${step[span]}, begins at ${duration(start[span])}, ${where(lane[span])}. `,
    one ? `${one.group} episode ${one.episode}. ` : null,
    one && one.row !== null
      ? link(
          to.episode(route.run, `step-${String(one.step).padStart(6, "0")}`, one.row),
          "Open the episode",
        )
      : null,
  );
}

/** Waits of one process for one reason together, the longest first. */
function waits(data) {
  const together = new Map();
  for (const { lane, reason, seconds } of data.waits) {
    const { process } = data.lanes[lane];
    const key = JSON.stringify([process, reason]);
    const one = together.get(key) ?? { process, reason, lanes: new Set(), longest: 0, sum: 0 };
    one.lanes.add(lane);
    one.longest = Math.max(one.longest, seconds);
    one.sum += seconds;
    together.set(key, one);
  }
  if (!together.size) return null;
  return h(
    "section",
    h("h2", "Who waited, and for what"),
    table(
      "Waits, the longest first",
      [
        { title: "Who" },
        { title: "Why", wide: true },
        { title: "Places", number: true },
        { title: "Longest", number: true },
        { title: "Together", number: true },
      ],
      [...together.values()]
        .sort((a, b) => b.longest - a.longest)
        .slice(0, ROWS)
        .map((one) => [
          one.process,
          one.reason,
          number(one.lanes.size),
          duration(one.longest),
          duration(one.sum),
        ]),
    ),
  );
}

function totals(data) {
  if (!data.totals.length) return null;
  const kinds = ["sampling", "tools", "environment", "grading", "own work"];
  return h(
    "section",
    h("h2", "Seconds of episodes"),
    table(
      "Seconds of episodes, by process",
      [
        { title: "Process" },
        { title: "Episodes", number: true },
        { title: "Places", number: true },
        ...kinds.map((kind) => ({ title: kind[0].toUpperCase() + kind.slice(1), number: true })),
      ],
      data.totals.map((one) => [
        one.process,
        number(one.episodes),
        number(one.slots),
        ...kinds.map((kind) => duration(one.seconds[kind] ?? 0)),
      ]),
    ),
  );
}

function asTable(data) {
  const { lane, kind, episode, start, seconds } = data.spans;
  const rows = lane
    .slice(0, ROWS)
    .map((at, one) => [
      `${data.lanes[at].process}, place ${data.lanes[at].slot + 1}`,
      KINDS[data.kinds[kind[one]]] ?? data.kinds[kind[one]],
      data.episodes[episode[one]]
        ? `${data.episodes[episode[one]].group} episode ${data.episodes[episode[one]].episode}`
        : "",
      duration(start[one]),
      duration(seconds[one]),
    ]);
  const title =
    lane.length > ROWS ? `The first ${ROWS} of ${number(lane.length)} spans` : "All spans";
  return h(
    "details",
    h("summary", `${title} as a table`),
    table(
      title,
      [
        { title: "Lane" },
        { title: "Kind" },
        { title: "Episode" },
        { title: "Begins", number: true },
        { title: "Takes", number: true },
      ],
      rows,
    ),
  );
}
