// A chart of lines over steps, drawn as SVG: bands, markers, a reading at the pointer or by arrow
// keys. Not here: which metrics there are (curves.js), small drawings within text (marks.js).

import { h, replace, svg } from "./dom.js";
import { number } from "./format.js";

const WIDTH = 380,
  HEIGHT = 150,
  LEFT = 44,
  RIGHT = 8,
  TOP = 8,
  BOTTOM = 20;
const MOST_POINTS = 600;

/** `lines`: [{name, kind, steps, values, low?, high?}], where `low` and `high` make a band; `markers`:
 * [{step, kind, text}]; `at` is the word before a step, and `named` lines are called by name beside
 * their numbers. Gives the figure's element. */
export function chart({ name, meaning, lines, markers = [], range, at = "step", named = false }) {
  const drawn = lines.filter((line) => line.values.some(Number.isFinite));
  const scale = scales(drawn, range);
  const reading = h("p", { class: "reading" });
  const cursor = svg("line", {
    class: "cursor",
    y1: TOP,
    y2: HEIGHT - BOTTOM,
    visibility: "hidden",
  });
  const dots = drawn.map((line) =>
    svg("circle", { class: `dot kind${line.kind % 8}`, r: 3, visibility: "hidden" }),
  );
  const picture = svg(
    "svg",
    {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      tabindex: 0,
      role: "slider",
      "aria-label": name,
      "aria-orientation": "horizontal",
      "aria-valuemin": scale.first,
      "aria-valuemax": scale.last,
      "aria-valuenow": scale.last,
    },
    axes(scale),
    markers
      .filter((one) => one.step >= scale.first && one.step <= scale.last)
      .map((one) => marker(one, scale)),
    drawn.map((line) =>
      line.low ? svg("path", { class: `band kind${line.kind % 8}`, d: area(line, scale) }) : null,
    ),
    drawn.map((line) =>
      svg("path", { class: `line kind${line.kind % 8}`, d: path(line.steps, line.values, scale) }),
    ),
    cursor,
    dots,
  );
  const steps = [...new Set(drawn.flatMap((line) => line.steps))].sort((a, b) => a - b);
  const show = (step) =>
    read({ step, drawn, markers, scale, picture, cursor, dots, reading, name, at, named });
  follow(picture, steps, scale, show);
  show(steps[steps.length - 1]);
  cursor.setAttribute("visibility", "hidden");
  return h(
    "figure",
    { class: "chart" },
    h(
      "figcaption",
      {},
      h("span", { class: "metric" }, name),
      meaning ? h("span", { class: "meaning", role: "tooltip" }, meaning) : null,
    ),
    reading,
    picture,
  );
}

function scales(lines, range) {
  const steps = lines.flatMap((line) => [line.steps[0], line.steps[line.steps.length - 1]]);
  const [first, last] = range ?? [Math.min(...steps), Math.max(...steps)];
  let low = Infinity,
    high = -Infinity;
  for (const line of lines) {
    for (const values of [line.values, line.low ?? [], line.high ?? []]) {
      for (const value of values) {
        if (!Number.isFinite(value)) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
  }
  if (low > 0 && low < 0.4 * high) low = 0;
  if (low === high)
    [low, high] = [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
  const x = (step) => LEFT + ((WIDTH - LEFT - RIGHT) * (step - first)) / Math.max(1, last - first);
  const y = (value) => TOP + ((HEIGHT - TOP - BOTTOM) * (high - value)) / (high - low);
  return { first, last, low, high, x, y };
}

/** Round numbers between two others, about `count` of them. */
export function ticks(low, high, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step)
    found.push(Number(at.toPrecision(12)));
  return found;
}

function axes({ first, last, low, high, x, y }) {
  const across = ticks(low, high, 3).map((value) => [
    svg("line", { class: "rule", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
    svg(
      "text",
      { class: "tick", x: LEFT - 6, y: y(value) + 3.5, "text-anchor": "end" },
      number(value),
    ),
  ]);
  const down = last > first ? ticks(first, last, 5).filter(Number.isInteger) : [first];
  return [
    across,
    down.map((step) =>
      svg(
        "text",
        {
          class: "tick",
          x: x(step),
          y: HEIGHT - 5,
          "text-anchor": step > last - (last - first) / 20 ? "end" : "middle",
        },
        step,
      ),
    ),
  ];
}

function marker({ step, kind, text }, { x }) {
  return svg(
    "g",
    { class: `marker ${kind.replaceAll(" ", "-")}` },
    svg("title", {}, `Step ${step}: ${text}`),
    svg("line", { x1: x(step), x2: x(step), y1: TOP, y2: HEIGHT - BOTTOM }),
    svg("circle", { cx: x(step), cy: TOP, r: 3 }),
  );
}

/** A path through the numbers that are there; where there are too many, least and greatest of each
 * piece are kept, so that no spike is lost. */
function path(steps, values, { x, y }) {
  let text = "",
    open = false;
  for (const index of kept(values)) {
    const value = values[index];
    if (!Number.isFinite(value)) {
      open = false;
      continue;
    }
    text += `${open ? "L" : "M"}${x(steps[index]).toFixed(1)} ${y(value).toFixed(1)}`;
    open = true;
  }
  return text;
}

function kept(values) {
  if (values.length <= MOST_POINTS) return values.keys();
  const size = Math.ceil((2 * values.length) / MOST_POINTS);
  const indices = [];
  for (let start = 0; start < values.length; start += size) {
    let least = start,
      most = start;
    for (let index = start; index < Math.min(values.length, start + size); index++) {
      if (values[index] < values[least]) least = index;
      if (values[index] > values[most]) most = index;
    }
    indices.push(...(least === most ? [least] : [Math.min(least, most), Math.max(least, most)]));
  }
  return indices;
}

function area({ steps, low, high }, { x, y }) {
  const there = [...steps.keys()].filter(
    (index) => Number.isFinite(low[index]) && Number.isFinite(high[index]),
  );
  if (!there.length) return "";
  const point = (values) => (index) =>
    `${x(steps[index]).toFixed(1)} ${y(values[index]).toFixed(1)}`;
  return `M${there.map(point(high)).join("L")}L${there.reverse().map(point(low)).join("L")}Z`;
}

function read({ step, drawn, markers, scale, picture, cursor, dots, reading, name, at, named }) {
  const said = drawn.map((line) => {
    const index = line.steps.indexOf(step);
    return { line, value: index < 0 ? null : line.values[index] };
  });
  const values = said.map(({ line, value }) =>
    drawn.length > 1 ? `${line.name} ${number(value)}` : number(value),
  );
  const here = markers.filter((one) => one.step === step).map((one) => one.text);
  replace(
    reading,
    h("span", { class: "when" }, `${at} ${step}`),
    said.map(({ line, value }) =>
      h(
        "span",
        { class: `value kind${line.kind % 8}`, title: line.name },
        named ? `${line.name} ${number(value)}` : number(value),
      ),
    ),
    here.map((text) => h("span", { class: "remark" }, text)),
  );
  picture.setAttribute("aria-valuenow", step);
  picture.setAttribute(
    "aria-valuetext",
    `${name}, ${at} ${step}: ${[...values, ...here].join(", ")}`,
  );
  cursor.setAttribute("x1", scale.x(step));
  cursor.setAttribute("x2", scale.x(step));
  cursor.setAttribute("visibility", "visible");
  said.forEach(({ value }, index) => {
    dots[index].setAttribute("visibility", Number.isFinite(value) ? "visible" : "hidden");
    if (Number.isFinite(value)) {
      dots[index].setAttribute("cx", scale.x(step));
      dots[index].setAttribute("cy", scale.y(value));
    }
  });
}

/** Move the reading with the pointer and with the arrow keys. */
function follow(picture, steps, { first, last }, show) {
  let at = steps.length - 1;
  const go = (index) => {
    at = Math.min(Math.max(index, 0), steps.length - 1);
    show(steps[at]);
  };
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const share =
      ((event.clientX - box.left) * (WIDTH / box.width) - LEFT) / (WIDTH - LEFT - RIGHT);
    go(nearest(steps, first + share * (last - first)));
  });
  picture.addEventListener("pointerleave", () => go(steps.length - 1));
  picture.addEventListener("keydown", (event) => {
    const moves = {
      ArrowLeft: -1,
      ArrowRight: 1,
      PageUp: 10,
      PageDown: -10,
      Home: -Infinity,
      End: Infinity,
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    go(at + moves[event.key]);
  });
}

function nearest(steps, wanted) {
  let best = 0;
  for (let index = 1; index < steps.length; index++) {
    if (Math.abs(steps[index] - wanted) < Math.abs(steps[best] - wanted)) best = index;
  }
  return best;
}
