// What tokens can be coloured by: for each choice the class of a token, and the legend.

import { categorical, diverging, quantile, sequential, STEPS } from "./colours.js";
import { h } from "./dom.js";
import { number, signed } from "./format.js";

/** Choices in the order shown; `column` is the one of the data that each needs. */
export const CHOICES = [
  { name: "source", title: "Source", column: "source" },
  { name: "trained", title: "Trained", column: "trained" },
  { name: "advantage", title: "Advantage", column: "advantage" },
  { name: "logprob", title: "Log-prob. sampled", column: "logprob" },
  { name: "trained_logprob", title: "Log-prob. trained", column: "trained_logprob" },
  { name: "gap", title: "Gap", column: "gap" },
  { name: "ratio", title: "Ratio", column: "ratio" },
  { name: "entropy", title: "Entropy", column: "entropy" },
  { name: "value", title: "Value", column: "value" },
  { name: "version", title: "Version", column: "version" },
  { name: "loss_weight", title: "Share of the update's loss", column: "loss_weight" },
];

const WORDS = {
  advantage: ["made less likely", "made more likely"],
  gap: ["less likely when trained", "more likely when trained"],
  ratio: ["ratio below 1", "ratio above 1"],
  value: ["a low return expected", "a high return expected"],
};

/** {column, style(index), legend()} for a choice. */
export function painter(name, columns, sources) {
  const { column } = CHOICES.find((choice) => choice.name === name);
  const values = columns[column] ?? [];
  if (name === "source") {
    return {
      column,
      style: (index) => categorical(values[index]),
      legend: () => keys(present(values, sources)),
    };
  }
  if (name === "trained") {
    return {
      column,
      style: (index) => (values[index] ? "kind2" : ""),
      legend: () =>
        keys([
          ["kind2", "has a gradient"],
          ["", "has none"],
        ]),
    };
  }
  if (name === "version") return versions(column, values);
  if (name in WORDS) return signedPainter(name, column, values);
  return levels(name, column, values);
}

function present(values, sources) {
  const there = new Set(values);
  return sources
    .map((source, index) => [categorical(index), source, index])
    .filter(([, , index]) => there.has(index));
}

function keys(pairs) {
  return h(
    "ul.keys",
    pairs.map(([style, text]) =>
      h("li", h("span", { class: `swatch token ${style}`, "aria-hidden": "true" }), text),
    ),
  );
}

function versions(column, values) {
  const all = [...new Set(values.filter((value) => value !== null && value >= 0))].sort(
    (a, b) => a - b,
  );
  return {
    column,
    style: (index) =>
      values[index] === null || values[index] < 0 ? "" : categorical(all.indexOf(values[index])),
    legend: () =>
      keys([
        ...all.slice(0, 12).map((version, index) => [categorical(index), `version ${version}`]),
        ["", "not sampled"],
      ]),
  };
}

/** Numbers with a middle: 1 for ratios (on a logarithmic scale), 0 for the others. */
function signedPainter(name, column, values) {
  const moved =
    name === "ratio" ? values.map((value) => (value > 0 ? Math.log(value) : null)) : values;
  // Not the greatest, or a few outliers would leave all others pale.
  const most = quantile(
    moved.map((value) => (value === null ? NaN : Math.abs(value))).filter((value) => value > 0),
    0.99,
  );
  const edge = (sign) =>
    name === "ratio" ? number(Math.exp(sign * most), 4) : signed(sign * most);
  return {
    column,
    style: (index) => diverging(moved[index], most),
    legend: () =>
      h(
        "div.ramp",
        h("span", `${WORDS[name][0]} ${edge(-1)}`),
        ramp(["down", "up"]),
        h("span", `${edge(1)} ${WORDS[name][1]}`),
      ),
  };
}

/** Numbers from 0 to a greatest one; log-probabilities by how surprising a token was. */
function levels(name, column, values) {
  const surprise = name.includes("logprob");
  const moved = surprise ? values.map((value) => (value === null ? null : -value)) : values;
  const most = quantile(
    moved.filter((value) => value !== null),
    0.99,
  );
  return {
    column,
    style: (index) => sequential(moved[index], most),
    legend: () =>
      h(
        "div.ramp",
        h("span", surprise ? "0 certain" : "0"),
        ramp(["high"]),
        h("span", surprise ? `${number(-most)} surprising` : number(most)),
      ),
  };
}

function ramp(sides) {
  const steps = [...Array(STEPS).keys()].map((index) => index + 1);
  const names =
    sides.length === 2
      ? [...steps]
          .reverse()
          .map((step) => `down${step}`)
          .concat(steps.map((step) => `up${step}`))
      : steps.map((step) => `high${step}`);
  return h(
    "span.ramp-steps",
    { "aria-hidden": "true" },
    names.map((name) => h("i", { class: `token ${name}` })),
  );
}
