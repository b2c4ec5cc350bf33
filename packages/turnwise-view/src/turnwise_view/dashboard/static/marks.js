// Small drawings within text and tables: intervals, progress, credit, badges.

import { h, svg } from "./dom.js";
import { outcomeClass } from "./colours.js";
import { number, outcomeTitle, percent, signed } from "./format.js";

/** A rate between 0 and 1 as a dot on a line, with its interval. */
export function interval(figure) {
  const x = (share) => 2 + 96 * Math.min(Math.max(share ?? 0, 0), 1);
  return svg(
    "svg.interval",
    {
      viewBox: "0 0 100 12",
      preserveAspectRatio: "none",
      "aria-hidden": "true",
    },
    svg("line.base", { x1: 2, x2: 98, y1: 6, y2: 6 }),
    figure.low === null || figure.low === undefined
      ? null
      : svg("line.spread", { x1: x(figure.low), x2: x(figure.high), y1: 6, y2: 6 }),
    svg("line.point", { x1: x(figure.rate), x2: x(figure.rate), y1: 1, y2: 11 }),
  );
}

/** A rate in words: "51.0% (41.3 – 60.6)". */
export function rate(figure) {
  if (figure.low === null || figure.low === undefined) return percent(figure.rate);
  return `${percent(figure.rate)} (${(100 * figure.low).toFixed(1)} – ${(100 * figure.high).toFixed(1)})`;
}

/** How far a run is, as a thin bar with words. */
export function progress(done, planned) {
  if (!planned) return h("span", done ? `${number(done)} steps` : "–");
  return h(
    "span.progress",
    h("span", `${number(done)} of ${number(planned)} steps`),
    h(
      "span.track",
      { "aria-hidden": "true" },
      h("span", { style: { width: `${Math.min(100, (100 * done) / planned)}%` } }),
    ),
  );
}

/** A state or outcome as a word with a dot. */
export function badge(text, kind) {
  return h("span", { class: `badge ${kind}` }, text);
}

const STATES = {
  running: "live",
  finished: "good",
  stopped: "cut",
  empty: "ungraded",
  unreadable: "bad",
};

export const stateBadge = (state) => badge(state, STATES[state] ?? "ungraded");

export const outcomeBadge = (outcome, success) =>
  badge(outcomeTitle(outcome), outcomeClass(outcome, success));

/** A number from the middle of a line: to the right what raises, to the left what lowers. */
export function creditBar(value, most, label) {
  const half = most > 0 ? (50 * Math.min(Math.abs(value ?? 0), most)) / most : 0;
  return h(
    "span.credit",
    h("span.unseen", `${label} `),
    h(
      "span.credit-track",
      { "aria-hidden": "true" },
      h("span", {
        class: (value ?? 0) < 0 ? "down" : "up",
        style: { left: `${(value ?? 0) < 0 ? 50 - half : 50}%`, width: `${half}%` },
      }),
    ),
    h("span.credit-number", signed(value)),
  );
}

/** Names with values beneath them. `pairs`: [[name, text or element]]; empty ones are passed over. */
export function facts(pairs) {
  const kept = pairs.filter(
    ([, value]) => value !== null && value !== undefined && value !== "" && value !== "–",
  );
  return h(
    "dl.facts",
    kept.map(([name, value]) => h("div", h("dt", name), h("dd", value))),
  );
}
