// One step: its groups with the reward of each episode, what could not be graded, and a filter by
// brushing.

import { api } from "./api.js";
import { brush } from "./brush.js";
import { append, h, link, notice, replace, select, table } from "./dom.js";
import { count, fileTitle, number, outcomeTitle, percent } from "./format.js";
import { outcomeClass } from "./colours.js";
import { badge, facts } from "./marks.js";
import { to } from "./router.js";

const AT_ONCE = 60;
const QUANTITIES = [
  ["reward", "Reward"],
  ["tokens", "Tokens"],
  ["turns", "Turns"],
  ["tool_calls", "Tool calls"],
  ["staleness", "Staleness"],
];

export async function show(route, signal) {
  const [file] = route.parts;
  const [run, step] = await Promise.all([
    api.run(route.run, signal),
    api.step(route.run, file, signal),
  ]);
  const state = { quantity: "reward", range: null, only: "all" };
  const list = h("div"),
    chart = h("div.brush");
  const draw = () => replace(list, groups(route.run, file, step, state));
  const drawChart = () => {
    state.range = null;
    replace(
      chart,
      brush(numbers(step, state.quantity), title(state.quantity), (range) => {
        state.range = range;
        draw();
      }),
    );
    draw();
  };
  drawChart();
  const element = h(
    "div",
    h("div.heading", h("h1", fileTitle(file)), neighbours(route.run, run, step, file)),
    summary(step),
    ungraded(step),
    h(
      "section",
      h("h2", "Groups"),
      h(
        "div.controls",
        select(
          "Brush",
          QUANTITIES.filter(([key]) => numbers(step, key).length),
          state.quantity,
          (value) => {
            state.quantity = value;
            drawChart();
          },
        ),
        select(
          "Show",
          [
            ["all", "All groups"],
            ["signal", "Groups with a signal"],
            ["equal", "All rewards equal"],
            ["ungraded", "With ungraded"],
          ],
          state.only,
          (value) => {
            state.only = value;
            draw();
          },
        ),
      ),
      chart,
      list,
    ),
    measured(step),
  );
  return {
    title: `${fileTitle(file)}, ${run.name}`,
    element,
    keys: {
      "[": step.previous ? to.step(route.run, step.previous) : null,
      "]": step.next ? to.step(route.run, step.next) : null,
    },
  };
}

const title = (quantity) => QUANTITIES.find(([key]) => key === quantity)[1];

const numbers = (step, quantity) =>
  step.groups
    .flatMap((group) => group.episodes.map((one) => one[quantity]))
    .filter(Number.isFinite);

function neighbours(id, run, step, file) {
  const choices = run.files.map((one) => [one.name, fileTitle(one.name)]);
  return h(
    "div.actions",
    step.previous
      ? link(to.step(id, step.previous), { class: "button quiet", rel: "prev" }, "← Previous")
      : null,
    select("Go to", choices, file, (value) => {
      location.hash = to.step(id, value).slice(1);
    }),
    step.next
      ? link(to.step(id, step.next), { class: "button quiet", rel: "next" }, "Next →")
      : null,
  );
}

function summary(step) {
  const episodes = step.groups.flatMap((group) => group.episodes);
  const graded = episodes.filter((one) => Number.isFinite(one.reward));
  const mean = (pick) =>
    graded.length ? graded.reduce((sum, one) => sum + Number(pick(one)), 0) / graded.length : null;
  const equal = step.groups.filter((group) => group.all_equal).length;
  return facts([
    ["Success", percent(mean((one) => Boolean(one.success)))],
    ["Mean reward", number(mean((one) => one.reward))],
    ["Episodes", `${number(episodes.length)} in ${count(step.groups.length, "group")}`],
    ["No signal", equal ? `${count(equal, "group")} with equal rewards` : null],
    ["Stale at most", maximum(episodes.map((one) => one.staleness))],
  ]);
}

function maximum(values) {
  const there = values.filter(Number.isFinite);
  return there.length && Math.max(...there) > 0 ? count(Math.max(...there), "version") : null;
}

function ungraded(step) {
  const reasons = Object.entries(step.ungraded ?? {});
  if (!reasons.length) return null;
  const text = reasons
    .map(([outcome, many]) => `${number(many)} × ${outcomeTitle(outcome)}`)
    .join(", ");
  return notice("Ungraded episodes", `${text}. They are in no loss and no baseline.`, "warn");
}

function groups(id, file, step, state) {
  const [low, high] = state.range ?? [-Infinity, Infinity];
  const inside = (one) =>
    state.range === null || (one[state.quantity] >= low && one[state.quantity] <= high);
  const kept = step.groups.filter(
    (group) =>
      group.episodes.some(inside) &&
      (state.only === "all" ||
        (state.only === "equal" && group.all_equal) ||
        (state.only === "signal" && !group.all_equal) ||
        (state.only === "ungraded" && group.ungraded > 0)),
  );
  const shown = kept.reduce((sum, group) => sum + group.episodes.filter(inside).length, 0);
  const element = h("ul.groups");
  const more = h("button.quiet", { type: "button", onclick: () => grow() });
  let end = 0;
  const grow = () => {
    append(
      element,
      kept.slice(end, end + AT_ONCE).map((group) => row(id, file, group, inside)),
    );
    end += AT_ONCE;
    more.hidden = end >= kept.length;
    more.textContent = `Show more (${number(kept.length - end)} groups left)`;
  };
  grow();
  return [
    h(
      "p.quiet",
      { role: "status" },
      `${count(shown, "episode")} in ${count(kept.length, "group")}`,
    ),
    kept.length ? element : notice("No such groups", "Widen the range, or show all groups."),
    more,
  ];
}

function row(id, file, group, inside) {
  return h(
    "li.group",
    h(
      "div.group-head",
      link(to.group(id, file, group.group), { class: "prompt" }, group.prompt || group.task),
      group.all_equal ? badge("no signal: all equal", "ungraded") : null,
      group.ungraded ? badge(`${group.ungraded} ungraded`, "cut") : null,
    ),
    h(
      "div.episodes",
      group.episodes.map((one) => tile(id, file, one, inside(one))),
    ),
  );
}

function tile(id, file, one, inside) {
  const said =
    `Episode ${one.episode}: ${outcomeTitle(one.outcome)}, reward ${number(one.reward)}, ${count(one.turns, "turn")}, ` +
    `${count(one.tokens, "token")}${one.staleness ? `, stale by ${one.staleness}` : ""}`;
  return link(
    to.episode(id, file, one.row),
    {
      class: `tile ${outcomeClass(one.outcome, one.success)}${inside ? "" : " outside"}`,
      title: said,
      "aria-label": said,
    },
    Number.isFinite(one.reward) ? number(one.reward, 2) : "–",
  );
}

function measured(step) {
  const rows = Object.entries(step.metrics ?? {}).filter(([name]) => name !== "step");
  if (!rows.length) return null;
  return h(
    "details",
    h("summary", `${rows.length} metrics of this step`),
    table(
      "Metrics of this step",
      [{ title: "Metric" }, { title: "Value", number: true }],
      rows.map(([name, value]) => [name, number(value)]),
    ),
  );
}
