// Who waited for whom within a step: a lane for each worker, a bar for each thing that took time.
// Not here: seconds over all steps (curves.js).

import { api } from "./api.js";
import { ticks } from "./chart.js";
import { h, link, notice, select, svg, table } from "./dom.js";
import { duration } from "./format.js";
import { to } from "./router.js";

const LANE = 26,
  LABEL = 110,
  WIDTH = 900,
  HEAD = 22,
  AT_MOST = 3000;
const KINDS = {
  sampling: "Sampling",
  tools: "Tools",
  grading: "Grading",
  learning: "Learning",
  weights: "Weights",
  waiting: "Waiting",
};

export async function show(route, signal) {
  const run = await api.run(route.run, signal);
  const steps = run.files.filter((file) => file.kind === "step").map((file) => file.step);
  const step = route.parts[0] ?? steps[steps.length - 1];
  const data =
    step === undefined
      ? { spans: [], absent: "No step is done yet." }
      : await api.timeline(route.run, step, signal);
  const place = steps.indexOf(Number(step));
  const beside = (offset) =>
    place >= 0 && steps[place + offset] !== undefined
      ? to.timeline(route.run, steps[place + offset])
      : null;
  const element = h(
    "div",
    {},
    h(
      "div",
      { class: "heading" },
      h("h1", {}, step === undefined ? "Timeline" : `Timeline of step ${step}`),
      h(
        "div",
        { class: "actions" },
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
    data.absent ? notice("No timeline", data.absent, "empty") : null,
    data.spans.length ? [legend(data.spans), picture(data.spans), asTable(data.spans)] : null,
  );
  return { title: `Timeline, ${run.name}`, element, keys: { "[": beside(-1), "]": beside(1) } };
}

function legend(spans) {
  const there = new Set(spans.map((span) => span.kind));
  return h(
    "ul",
    { class: "keys" },
    Object.entries(KINDS)
      .filter(([kind]) => there.has(kind))
      .map(([kind, title]) =>
        h(
          "li",
          {},
          h("span", { class: `swatch span-${kind}`, "aria-hidden": "true" }),
          title,
          " ",
          h(
            "span",
            { class: "quiet" },
            duration(
              spans
                .filter((span) => span.kind === kind)
                .reduce((sum, span) => sum + span.end - span.start, 0),
            ),
          ),
        ),
      ),
  );
}

function picture(spans) {
  const lanes = [...new Set(spans.map((span) => span.lane))];
  const begin = spans.reduce((least, span) => Math.min(least, span.start), Infinity);
  const end = spans.reduce((most, span) => Math.max(most, span.end), -Infinity);
  const scale = (WIDTH - LABEL - 10) / Math.max(end - begin, 1e-9);
  const x = (time) => LABEL + (time - begin) * scale;
  const height = HEAD + LANE * lanes.length;
  const rules = ticks(0, end - begin, 8).map((time) => [
    svg("line", {
      class: "rule",
      x1: x(begin + time),
      x2: x(begin + time),
      y1: HEAD - 4,
      y2: height,
    }),
    svg(
      "text",
      { class: "tick", x: x(begin + time), y: 12, "text-anchor": "middle" },
      duration(time),
    ),
  ]);
  const bars = spans.slice(0, AT_MOST).map((span) =>
    svg(
      "rect",
      {
        class: `span-${span.kind}`,
        x: x(span.start),
        width: Math.max(1, (span.end - span.start) * scale),
        y: HEAD + LANE * lanes.indexOf(span.lane) + 3,
        height: LANE - 6,
        rx: 2,
      },
      svg("title", {}, `${span.label || KINDS[span.kind]}: ${duration(span.end - span.start)}`),
    ),
  );
  const names = lanes.map((lane, index) =>
    svg("text", { class: "lane", x: 0, y: HEAD + LANE * (index + 0.5) + 4 }, lane),
  );
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Timeline" },
    svg(
      "svg",
      {
        class: "timeline",
        viewBox: `0 0 ${WIDTH} ${height}`,
        role: "img",
        "aria-label": `Timeline with ${lanes.length} lanes; the table below has its numbers`,
      },
      rules,
      names,
      bars,
    ),
  );
}

function asTable(spans) {
  const rows = spans
    .slice(0, 500)
    .map((span) => [
      span.lane,
      KINDS[span.kind] ?? span.kind,
      span.label,
      duration(span.start - spans[0].start),
      duration(span.end - span.start),
    ]);
  return h(
    "details",
    {},
    h("summary", {}, "As a table"),
    table(
      "Timeline",
      [
        { title: "Lane" },
        { title: "Kind" },
        { title: "What" },
        { title: "Begins", number: true },
        { title: "Takes", number: true },
      ],
      rows,
    ),
  );
}
