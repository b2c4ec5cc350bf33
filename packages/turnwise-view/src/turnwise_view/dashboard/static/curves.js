// Every metric over the steps, with its meaning; several runs over each other, seeds as bands.

import { api } from "./api.js";
import { chart } from "./chart.js";
import { h, notice, replace } from "./dom.js";
import { note, to } from "./router.js";
import { labels } from "./runs.js";

const ORDER = [
  "reward",
  "validation",
  "rollout",
  "outcome",
  "groups",
  "policy",
  "critic",
  "repetition",
];
const LOGS = ["cold_start", "imitation", "preferences"];
const TITLES = {
  reward: "Reward",
  rollout: "Rollout",
  outcome: "Outcomes",
  groups: "Groups",
  policy: "Policy",
  critic: "Critic",
  repetition: "Repetition",
  seconds: "Seconds",
  update: "Update",
  environment: "Environments",
  curriculum: "Curriculum",
  validation: "Validation",
  cold_start: "Cold start",
  imitation: "Imitation",
  preferences: "Preferences",
};

export async function show(route, signal) {
  const others = (route.query.get("with") ?? "").split(",").filter(Boolean).map(decodeURIComponent);
  const ids = [route.run, ...others];
  const [{ runs }, ...data] = await Promise.all([
    api.runs(signal),
    ...ids.map((id) => api.curves(id, signal)),
  ]);
  const called = labels(runs);
  const names = ids.map((id) => called.get(id) ?? id);
  const state = {
    filter: route.query.get("filter") ?? "",
    bands: route.query.get("bands") === "1",
  };
  const area = h("div");
  const draw = () => replace(area, panels(data, names, state));
  draw();
  const element = h(
    "div",
    h("div.heading", h("h1", "Curves"), controls(state, draw, ids.length > 1)),
    ids.length > 1 || runs.length > 1 ? choice(route.run, ids, runs, called) : null,
    area,
  );
  return { title: `Curves, ${names[0]}`, element, live: ids.length === 1 && !state.filter };
}

function controls(state, draw, several) {
  return h(
    "div.actions",
    several
      ? h(
          "label.check",
          h("input", {
            type: "checkbox",
            checked: state.bands,
            onchange: (event) => {
              state.bands = event.target.checked;
              note({ bands: state.bands ? 1 : "" });
              draw();
            },
          }),
          "Seeds as bands",
        )
      : null,
    h(
      "label.field",
      h("span", "Find a metric"),
      h("input", {
        type: "search",
        value: state.filter,
        oninput: (event) => {
          state.filter = event.target.value;
          note({ filter: state.filter });
          draw();
        },
      }),
    ),
  );
}

/** Which runs are drawn over each other; the legend at once. */
function choice(first, ids, runs, called) {
  const change = (id, on) => {
    const rest = on ? [...ids.slice(1), id] : ids.slice(1).filter((one) => one !== id);
    location.hash = to.curves(first, { with: rest.map(encodeURIComponent).join(",") }).slice(1);
  };
  const shown = runs.filter((run) => run.state !== "unreadable");
  return h(
    "fieldset.legend",
    h("legend", "Runs"),
    shown.map((run) => {
      const id = String(run.id),
        index = ids.indexOf(id);
      return h(
        "label",
        { class: `check ${index < 0 ? "" : `key kind${index % 8}`}` },
        h("input", {
          type: "checkbox",
          checked: index >= 0,
          disabled: id === first,
          onchange: (event) => change(id, event.target.checked),
        }),
        called.get(id),
      );
    }),
  );
}

function panels(data, names, state) {
  const metrics = [...new Set(data.flatMap((one) => Object.keys(one.series)))];
  const meanings = Object.assign({}, ...data.map((one) => one.meanings));
  const wanted = state.filter.toLowerCase();
  const matching = metrics.filter((metric) =>
    `${metric} ${meanings[metric] ?? ""}`.toLowerCase().includes(wanted),
  );
  if (!metrics.length) return notice("No curves yet", "They begin with the run's first step.");
  if (!matching.length)
    return notice("No such metric", `Nothing is called or described by “${state.filter}”.`);
  const markers = data.flatMap((one) => one.markers);
  const ranges = rangesOf(data);
  const draw = (metric) => {
    const lines = drawnLines(data, names, metric, state.bands);
    if (!lines.some((line) => line.values.some(Number.isFinite))) return null;
    const log = logOf(metric);
    return chart({
      name: metric,
      meaning: meanings[metric],
      lines,
      markers: log ? [] : markers,
      range: ranges.get(log),
    });
  };
  const learning = (data[0].learning ?? []).filter((metric) => matching.includes(metric));
  const trap = (data[0].echo_trap ?? []).filter((metric) => matching.includes(metric));
  return [
    learning.length
      ? panel(
          "Does it learn?",
          "Success and reward of the episodes that were sampled, and success on held-out tasks where the run looks at them.",
          learning.map(draw),
        )
      : null,
    trap.length
      ? panel(
          "Echo Trap",
          "Rewards within a group come together, entropy falls, the gradient spikes, texts repeat: together they " +
            "say that the agent tells itself the same thing again and again.",
          trap.map(draw),
          "trap",
        )
      : null,
    grouped(matching).map(([group, members]) =>
      panel(TITLES[group] ?? group[0].toUpperCase() + group.slice(1), null, members.map(draw)),
    ),
  ];
}

/** The charts that say whether one run learns; none before its first step. */
export function learningCharts(one, name) {
  const [first, last] = rangesOf([one]).get("") ?? [0, 0];
  return (one.learning ?? [])
    .filter((metric) => one.series[metric].values.some(Number.isFinite))
    .map((metric) =>
      chart({
        name: metric,
        meaning: one.meanings[metric],
        lines: [{ name, kind: 0, ...one.series[metric] }],
        markers: one.markers,
        range: [first, last],
      }),
    );
}

/** The log of its own that a metric is of; empty for the steps of RL. */
const logOf = (metric) => LOGS.find((log) => metric.startsWith(`${log}/`)) ?? "";

/** The first and the last step of each log, so that all charts of one have the same width. */
function rangesOf(data) {
  const ranges = new Map();
  for (const one of data) {
    for (const [metric, { steps }] of Object.entries(one.series)) {
      const [first, last] = ranges.get(logOf(metric)) ?? [Infinity, -Infinity];
      ranges.set(logOf(metric), [
        Math.min(first, steps[0]),
        Math.max(last, steps[steps.length - 1]),
      ]);
    }
  }
  return ranges;
}

function panel(title, text, charts, kind = null) {
  const kept = charts.filter(Boolean);
  if (!kept.length) return null;
  return h(
    "section",
    { class: kind },
    h("h2", title),
    text ? h("p.lead", text) : null,
    h("div.charts", kept),
  );
}

function grouped(metrics) {
  const groups = new Map();
  for (const metric of metrics) {
    const group = metric.split("/")[0];
    groups.set(group, [...(groups.get(group) ?? []), metric]);
  }
  const place = (group) => (ORDER.includes(group) ? ORDER.indexOf(group) : ORDER.length);
  return [...groups].sort(([a], [b]) => place(a) - place(b));
}

/** A line for each run; as bands, one for the runs whose names differ in their last number only. */
function drawnLines(data, names, metric, bands) {
  const lines = data
    .map((one, index) => ({ name: names[index], kind: index, ...one.series[metric] }))
    .filter((line) => line.steps);
  if (!bands) return lines;
  const families = new Map();
  for (const line of lines) {
    const family = line.name.replace(/[\W_]*(seed)?[\W_]*\d+$/i, "") || line.name;
    families.set(family, [...(families.get(family) ?? []), line]);
  }
  return [...families].map(([family, members]) => band(family, members));
}

function band(name, members) {
  const steps = [...new Set(members.flatMap((line) => line.steps))].sort((a, b) => a - b);
  const at = members.map(
    (line) => new Map(line.steps.map((step, index) => [step, line.values[index]])),
  );
  const all = steps.map((step) => at.map((values) => values.get(step)).filter(Number.isFinite));
  return {
    name: `${name} (mean of ${members.length})`,
    kind: members[0].kind,
    steps,
    values: all.map((values) =>
      values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null,
    ),
    low: all.map((values) => (values.length ? Math.min(...values) : null)),
    high: all.map((values) => (values.length ? Math.max(...values) : null)),
  };
}
