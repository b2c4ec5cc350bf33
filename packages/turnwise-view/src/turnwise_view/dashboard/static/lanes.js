// Spans in lanes on a canvas that shows a part of them: scrolled over lanes, zoomed over time.

import { h, setStyle } from "./dom.js";
import { duration } from "./format.js";

const LANE = 18,
  HEAD = 24,
  CLOSEST = 1e-4; // seconds of the whole width, at least

export class Lanes {
  /** `data`: as the server gives it; `name(lane, short)`; `chosen({span} or {wait} or null)`. */
  constructor(data, name, chosen) {
    Object.assign(this, { data, name, chosen });
    this.from = 0;
    this.to = data.seconds || 1;
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.rest = h("div");
    this.box = h(
      "div.lanes",
      {
        tabindex: "0",
        role: "application",
        "aria-label": `Timeline with ${data.lanes.length} lanes. Plus and minus zoom, left and right move, 0 shows all. The tables below have its numbers.`,
        onkeydown: (event) => this.key(event),
        onscroll: () => this.draw(),
      },
      this.canvas,
      this.rest,
    );
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerdown", (event) => (this.grip = this.place(event)));
    this.canvas.addEventListener("pointerup", (event) => this.release(event));
    this.canvas.addEventListener("pointerleave", () => ((this.grip = null), this.draw()));
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.box);
  }

  leave() {
    this.watch.disconnect();
  }

  get label() {
    return this.width < 600 ? 84 : 200;
  }

  x(time) {
    return this.label + ((time - this.from) / (this.to - this.from)) * (this.width - this.label);
  }

  zoom(factor, centre = (this.from + this.to) / 2) {
    const span = Math.max(CLOSEST, Math.min(this.data.seconds, (this.to - this.from) * factor));
    this.show(centre - (centre - this.from) * (span / (this.to - this.from)), span);
  }

  move(share) {
    this.show(this.from + share * (this.to - this.from), this.to - this.from);
  }

  whole() {
    this.show(0, this.data.seconds);
  }

  show(from, span) {
    this.from = Math.max(0, Math.min(from, this.data.seconds - span));
    this.to = this.from + span;
    this.draw();
  }

  key(event) {
    const done = {
      "+": () => this.zoom(0.5),
      "=": () => this.zoom(0.5),
      "-": () => this.zoom(2),
      0: () => this.whole(),
      ArrowLeft: () => this.move(-0.2),
      ArrowRight: () => this.move(0.2),
    }[event.key];
    if (!done || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    done();
  }

  /** The lane and the time at a place of the canvas. */
  place(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const lane = Math.floor((event.clientY - box.top - HEAD + this.box.scrollTop) / LANE);
    const share = (x - this.label) / (this.width - this.label);
    return { x, lane, time: this.from + share * (this.to - this.from) };
  }

  point(event) {
    const at = this.place(event);
    this.canvas.style.setProperty("cursor", this.at(at) ? "pointer" : "crosshair");
    if (this.grip && Math.abs(at.x - this.grip.x) > 4) {
      this.draw();
      this.pen.globalAlpha = 0.2;
      this.pen.fillStyle = this.colours.ink;
      this.pen.fillRect(
        Math.min(at.x, this.grip.x),
        HEAD,
        Math.abs(at.x - this.grip.x),
        this.height,
      );
      this.pen.globalAlpha = 1;
    }
  }

  release(event) {
    const at = this.place(event);
    const from = this.grip;
    this.grip = null;
    if (from && Math.abs(at.x - from.x) > 4) {
      const first = Math.max(0, Math.min(at.time, from.time));
      this.show(first, Math.max(CLOSEST, Math.abs(at.time - from.time)));
    } else {
      this.chosen(this.at(at));
    }
  }

  /** What is drawn last at a place: a span's number, a wait, or null. */
  at({ lane, time }) {
    const { spans, waits } = this.data;
    const near = (2 * (this.to - this.from)) / this.width; // two pixels, as spans may be short
    for (let one = spans.lane.length - 1; one >= 0; one--) {
      if (spans.lane[one] !== lane || this.data.kinds[spans.kind[one]] === "waiting") continue;
      const start = spans.start[one];
      if (time >= start - near && time <= start + spans.seconds[one] + near) return { span: one };
    }
    const wait = waits.find(
      (one) => one.lane === lane && time >= one.start && time <= one.start + one.seconds,
    );
    return wait ? { wait } : null;
  }

  draw() {
    if (!this.box.isConnected) return;
    const all = HEAD + LANE * this.data.lanes.length + 6;
    this.width = this.box.clientWidth;
    this.scrolled = this.box.scrollTop; // read once: it makes the browser lay the page out
    this.height = Math.min(all, Math.max(220, Math.round(0.62 * window.innerHeight)));
    const sharp = window.devicePixelRatio || 1;
    this.canvas.width = this.width * sharp; // the screen's own pixels
    this.canvas.height = this.height * sharp;
    setStyle(this.canvas, { width: `${this.width}px`, height: `${this.height}px` });
    setStyle(this.box, { "max-height": `${this.height}px` });
    setStyle(this.rest, { height: `${all - this.height}px` });
    this.pen = this.canvas.getContext("2d");
    this.pen.scale(sharp, sharp);
    this.colours = this.read();
    this.pen.font = "12px system-ui, sans-serif";
    this.rules();
    this.waits();
    this.bars();
    this.names();
  }

  /** The colours of the page as it is, light or dark. */
  read() {
    const probe = h("i");
    this.box.append(probe);
    const of = (style) => {
      probe.className = style;
      return getComputedStyle(probe).backgroundColor;
    };
    const colours = { kinds: this.data.kinds.map((kind) => of(`span-${kind}`)) };
    for (const name of ["ink", "muted", "rule", "surface"]) colours[name] = of(`ground-${name}`);
    colours.waiting = of("span-waiting");
    probe.remove();
    return colours;
  }

  /** The top of a lane, or null where it is not in sight. */
  top(lane) {
    const y = HEAD + LANE * lane - this.scrolled;
    return y > HEAD - LANE && y < this.height ? y : null;
  }

  rules() {
    const { pen, colours } = this;
    pen.fillStyle = colours.rule;
    for (const time of ticks(this.from, this.to, this.width < 600 ? 3 : 8)) {
      pen.fillRect(this.x(time), HEAD - 4, 1, this.height);
    }
  }

  waits() {
    const { pen, colours } = this;
    pen.fillStyle = colours.waiting;
    for (const wait of this.data.waits) {
      const y = this.top(wait.lane);
      if (y === null || wait.start > this.to || wait.start + wait.seconds < this.from) continue;
      const first = Math.max(this.label, this.x(wait.start));
      const last = this.x(Math.min(this.to, wait.start + wait.seconds));
      for (let x = first; x < last; x += 5)
        pen.fillRect(x, y + 5, Math.min(2, last - x), LANE - 10);
    }
  }

  bars() {
    const { pen, colours } = this;
    const { lane, kind, start, seconds, step } = this.data.spans;
    const hidden = this.data.kinds.indexOf("waiting");
    const episode = this.data.kinds.indexOf("episode");
    for (let one = 0; one < lane.length; one++) {
      const end = start[one] + seconds[one];
      if (kind[one] === hidden || end < this.from || start[one] > this.to) continue;
      const y = this.top(lane[one]);
      if (y === null) continue;
      const x = Math.max(this.label, this.x(start[one]));
      const width = Math.max(1, this.x(Math.min(end, this.to)) - x - 0.5);
      pen.globalAlpha = step[one] === this.data.step ? 1 : 0.45;
      pen.fillStyle = colours.kinds[kind[one]];
      const inset = kind[one] === episode ? 2 : 4; // its parts lie within its bar
      pen.fillRect(x, y + inset, width, LANE - 2 * inset);
    }
    pen.globalAlpha = 1;
  }

  names() {
    const { pen, colours } = this;
    pen.fillStyle = colours.surface;
    pen.fillRect(0, 0, this.label - 1, this.height);
    pen.fillRect(0, 0, this.width, HEAD - 4);
    this.data.lanes.forEach((lane, number) => {
      const y = this.top(number);
      if (y === null || y < HEAD - 4) return;
      pen.fillStyle = lane.slot ? colours.muted : colours.ink;
      pen.fillText(this.name(lane, this.width < 600), 6, y + 13, this.label - 12);
    });
    pen.fillStyle = colours.muted;
    const times = ticks(this.from, this.to, this.width < 600 ? 3 : 8);
    const step = times.length > 1 ? times[1] - times[0] : 0;
    const digits = Math.max(0, Math.ceil(-Math.log10(step || 1)));
    for (const time of times) {
      const text = step && step < 30 ? `${time.toFixed(digits)} s` : duration(time);
      const x = Math.min(this.width - pen.measureText(text).width - 2, this.x(time) + 3);
      pen.fillText(text, x, 14);
    }
  }

  /** Buttons that do what the keys do. */
  buttons() {
    const button = (text, label, act) =>
      h("button.quiet", { type: "button", "aria-label": label, onclick: act }, text);
    return h(
      "div.lane-tools",
      button("−", "Zoom out", () => this.zoom(2)),
      button("+", "Zoom in", () => this.zoom(0.5)),
      button("←", "Earlier", () => this.move(-0.4)),
      button("→", "Later", () => this.move(0.4)),
      button("All", "Show all of it", () => this.whole()),
      h("span.quiet", "Drag to zoom; click a bar for what it is."),
    );
  }
}

/** Round numbers between two others, about `count` of them. */
function ticks(low, high, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step)
    found.push(Number(at.toPrecision(12)));
  return found;
}
