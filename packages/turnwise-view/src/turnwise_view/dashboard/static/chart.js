// A chart of lines over steps, drawn by uPlot: bands, markers, a reading at the pointer or by arrow
// keys.

import { h, replace } from "./dom.js";
import { number } from "./format.js";

const { uPlot } = window; // vendor/uPlot.iife.min.js
const HEIGHT = 150;
const WHOLE = [...Array(16).keys()].flatMap((power) => [1, 2, 5].map((one) => one * 10 ** power));
const MOVES = {
  ArrowLeft: -1,
  ArrowRight: 1,
  PageUp: 10,
  PageDown: -10,
  Home: -Infinity,
  End: Infinity,
};

/** `lines`: [{name, kind, steps, values, low?, high?}], where `low` and `high` make a band; `markers`:
 * [{step, kind, text}]; `at` is the word before a step, and `named` lines are called by name beside
 * their numbers. Gives the figure's element. */
export function chart({ name, meaning, lines, markers = [], range, at = "step", named = false }) {
  const drawn = lines.filter((line) => line.values.some(Number.isFinite));
  const banded = drawn.filter((line) => line.low);
  const data = uPlot.join([
    ...drawn.map((line) => [line.steps, line.values]),
    ...banded.map((line) => [line.steps, line.low, line.high]),
  ]);
  const [steps] = data;
  const last = steps.length - 1;
  const ends = range ?? [steps[0], steps[last]];
  const reading = h("p.reading");
  const picture = h("div.plot", {
    tabindex: 0,
    role: "slider",
    "aria-label": name,
    "aria-orientation": "horizontal",
    "aria-valuemin": ends[0],
    "aria-valuemax": ends[1],
    onkeydown: (event) => {
      if (!(event.key in MOVES)) return;
      event.preventDefault();
      const to = (picture.plot.cursor.idx ?? last) + MOVES[event.key];
      const left = picture.plot.valToPos(steps[Math.min(Math.max(to, 0), last)], "x");
      picture.plot.setCursor({ left, top: 0 });
    },
    onpointermove: (event) => {
      if (event.pointerType === "mouse") return; // which uPlot follows by itself
      const { left } = picture.plot.over.getBoundingClientRect();
      picture.plot.setCursor({ left: event.clientX - left, top: 0 });
    },
  });
  const read = (index) => {
    const step = steps[index];
    const said = drawn.map((line, one) => ({ ...line, text: number(data[1 + one][index]) }));
    const call = (line, so) => (so ? `${line.name} ${line.text}` : line.text);
    const here = markers.filter((one) => one.step === step).map((one) => one.text);
    replace(
      reading,
      h("span.when", `${at} ${step}`),
      said.map((line) =>
        h("span", { class: `value kind${line.kind % 8}`, title: line.name }, call(line, named)),
      ),
      here.map((text) => h("span.remark", text)),
    );
    const words = [...said.map((line) => call(line, said.length > 1)), ...here];
    picture.setAttribute("aria-valuenow", step);
    picture.setAttribute("aria-valuetext", `${name}, ${at} ${step}: ${words.join(", ")}`);
  };
  const begin = (size) => {
    const options = { ...size, ...settings(drawn, banded, ends) };
    picture.plot = new uPlot(options, data, picture);
    picture.plot.over.append(...markers.map((one) => marker(one, ends)).filter(Boolean));
    picture.plot.hooks.setCursor = [({ cursor }) => read(cursor.idx ?? last)];
  };
  new ResizeObserver(([{ contentRect }]) => {
    const size = { width: Math.floor(contentRect.width), height: HEIGHT };
    if (picture.plot) picture.plot.setSize(size);
    else if (size.width) begin(size);
  }).observe(picture);
  read(last);
  return h(
    "figure.chart",
    h(
      "figcaption",
      h("span.metric", name),
      meaning ? h("span.meaning", { role: "tooltip" }, meaning) : null,
    ),
    reading,
    picture,
  );
}

/** What uPlot is told: a column for each line, then two for each band. */
function settings(drawn, banded, [first, last]) {
  const colour = ({ kind }) => css(`--s${kind % 8}`);
  const edge = { stroke: "transparent", points: { show: false } };
  const axis = { font: "11px system-ui, sans-serif", stroke: () => css("--muted") };
  return {
    series: [
      {},
      ...drawn.map((line) => ({
        stroke: () => colour(line),
        width: 1.7,
        points: { size: 5, fill: () => colour(line) },
      })),
      ...banded.flatMap(() => [edge, edge]),
    ],
    bands: banded.map((line, index) => ({
      series: [drawn.length + 2 * index + 2, drawn.length + 2 * index + 1],
      fill: () => `${colour(line)}2b`, // a sixth of it
    })),
    scales: {
      x: { time: false, range: () => (first < last ? [first, last] : [first - 0.5, last + 0.5]) },
      y: { range: (_, low, high) => heights(low, high) },
    },
    axes: [
      {
        ...axis,
        size: 22,
        incrs: WHOLE,
        grid: { show: false },
        ticks: { show: false },
        values: (_, steps) => steps,
      },
      {
        ...axis,
        size: (_, texts) => Math.max(44, ...(texts ?? []).map((text) => 8 + 6.5 * text.length)),
        space: 30,
        grid: { stroke: () => css("--rule"), width: 1 },
        ticks: { show: false },
        values: (_, values) => values.map((value) => number(value)),
      },
    ],
    legend: { show: false },
    padding: [8, null, 0, 0],
    cursor: {
      y: false,
      drag: { x: false },
      points: { size: 7 },
      // No dots on the edges of bands.
      dataIdx: (_, column, index) => (column <= drawn.length ? index : null),
    },
  };
}

function heights(low, high) {
  if (low === high) {
    const half = (Math.abs(low) || 1) / 2;
    return [low - half, high + half];
  }
  // From 0 on, unless that would press the lines together.
  return [low > 0 && low < 0.4 * high ? 0 : low, high];
}

function marker({ step, kind }, [first, last]) {
  if (step < first || step > last) return null;
  const left = `${first < last ? (100 * (step - first)) / (last - first) : 50}%`;
  return h("i", { class: `marker ${kind.replaceAll(" ", "-")}`, style: { left } });
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const picture of document.querySelectorAll(".plot")) picture.plot?.redraw(false);
});
