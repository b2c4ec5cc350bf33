// A histogram with a range to choose, by dragging or by its two handles (arrow keys).

import { h, replace, svg } from "./dom.js";
import { number } from "./format.js";

const BINS = 24,
  WIDTH = 600,
  HEIGHT = 70;

/** The element; `change(range)` is called with [low, high], or null for everything. */
export function brush(values, name, change) {
  if (!values.length) return h("p.quiet", `No ${name.toLowerCase()} was recorded.`);
  const low = values.reduce((a, b) => Math.min(a, b)),
    high = values.reduce((a, b) => Math.max(a, b));
  if (low === high) return h("p.quiet", `${name} is ${number(low)} in every episode.`);
  const counts = new Array(BINS).fill(0);
  for (const value of values)
    counts[Math.min(BINS - 1, Math.floor((BINS * (value - low)) / (high - low)))] += 1;
  const most = Math.max(...counts);
  const bars = counts.map((many, bin) => {
    const height = many ? Math.max(2, (HEIGHT * many) / most) : 0;
    return svg(
      "rect",
      { x: (bin * WIDTH) / BINS + 1, width: WIDTH / BINS - 2, y: HEIGHT - height, height, rx: 1.5 },
      svg("title", `${many} of ${values.length}`),
    );
  });
  const reading = h("p.reading", { role: "status" });
  let range = [0, BINS];
  const at = (edge) => low + ((high - low) * edge) / BINS;
  const handles = ["least", "greatest"].map((which, index) =>
    h("input", {
      type: "range",
      min: 0,
      max: BINS,
      value: range[index],
      "aria-label": `${name}: ${which}`,
      oninput: (event) =>
        set(
          index === 0
            ? [Number(event.target.value), range[1]]
            : [range[0], Number(event.target.value)],
        ),
    }),
  );
  const whole = h("button.quiet", { type: "button", onclick: () => set([0, BINS]) }, "All");
  const say = () => {
    range.forEach((edge, index) => {
      handles[index].value = edge;
      handles[index].setAttribute("aria-valuetext", number(at(edge)));
    });
    bars.forEach((bar, bin) => bar.classList.toggle("outside", bin < range[0] || bin >= range[1]));
    whole.hidden = range[0] === 0 && range[1] === BINS;
    replace(reading, `${name} from ${number(at(range[0]))} to ${number(at(range[1]))}`);
  };
  const set = ([from, to]) => {
    range = [Math.min(from, to), Math.max(from, to)];
    // At least one bar is within.
    if (range[0] === range[1])
      range = range[1] < BINS ? [range[0], range[0] + 1] : [BINS - 1, BINS];
    say();
    change(whole.hidden ? null : [at(range[0]), at(range[1])]);
  };
  const picture = svg(
    "svg.histogram",
    {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      "aria-hidden": "true",
    },
    bars,
  );
  drag(picture, set);
  say();
  return h("div", h("div.brush-area", picture, handles), h("div.brush-foot", reading, whole));
}

function drag(picture, set) {
  let start = null;
  const bin = (event) => {
    const box = picture.getBoundingClientRect();
    return (BINS * (event.clientX - box.left)) / box.width;
  };
  const bounded = (edge) => Math.min(BINS, Math.max(0, edge));
  picture.addEventListener("pointerdown", (event) => {
    start = bin(event);
    picture.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  picture.addEventListener("pointermove", (event) => {
    if (start === null) return;
    const now = bin(event);
    set([bounded(Math.floor(Math.min(start, now))), bounded(Math.ceil(Math.max(start, now)))]);
  });
  picture.addEventListener("pointerup", () => {
    start = null;
  });
}
