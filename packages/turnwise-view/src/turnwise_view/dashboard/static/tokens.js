// One episode as its tokens: coloured by what the reader chooses, each with its numbers and, where
// it has no gradient, the reason.

import { api } from "./api.js";
import { CHOICES, painter } from "./overlays.js";
import { h, link, replace } from "./dom.js";
import { heading } from "./episode.js";
import { count, fileTitle, number, signed } from "./format.js";
import { note, to } from "./router.js";
import { TokenRows } from "./rows.js";

const PART = 10000; // tokens asked for at once

export async function show(route, signal) {
  const [file, row] = route.parts;
  const ask = (from) => api.tokens(route.run, file, row, from, from + PART, signal);
  const [one, first] = await Promise.all([api.episode(route.run, file, row, signal), ask(0)]);
  const view = new Tokens(route, one, first);
  view.add(first);
  return {
    title: `Tokens of episode ${row}, ${fileTitle(file)}`,
    element: view.element,
    keys: { n: () => view.next(1), p: () => view.next(-1), k: to.episode(route.run, file, row) },
    shown: () => view.begin(ask),
    leave: () => view.rows.leave(),
  };
}

class Tokens {
  constructor(route, one, first) {
    this.route = route;
    this.count = first.count;
    this.sources = first.sources ?? [];
    this.reasons = first.reasons ?? [];
    this.absent = first.absent ?? {};
    this.columns = {};
    this.by = CHOICES.some((choice) => choice.name === route.query.get("by"))
      ? route.query.get("by")
      : "source";
    this.wanted = { from: Number(route.query.get("from") ?? 0), find: route.query.get("find") };
    this.legend = h("div.scale");
    this.panel = h("aside.token-facts", {
      "aria-live": "polite",
      "aria-label": "The token",
    });
    this.progress = h("p.quiet", { role: "status" });
    this.rows = new TokenRows({
      style: (index) => this.paint(index),
      label: (index) => this.label(index),
      chosen: (index) => this.describe(index),
    });
    this.strip = h("canvas.strip", {
      height: 1,
      "aria-hidden": "true",
      onclick: (event) => this.jump(event),
    });
    this.choices = h("fieldset.choices");
    this.element = h(
      "article.episode",
      heading(route, one, "tokens"),
      this.choices,
      this.legend,
      h(
        "div.token-view",
        h(
          "div",
          this.strip,
          this.rows.box,
          h(
            "div.token-foot",
            this.progress,
            h(
              "button.quiet",
              { type: "button", onclick: () => this.next(-1) },
              "← Previous trained down",
            ),
            h(
              "button.quiet",
              { type: "button", onclick: () => this.next(1) },
              "Next trained down →",
            ),
          ),
        ),
        this.panel,
      ),
    );
  }

  /** Once in the document: go to what the address asks for, then load the rest. */
  async begin(ask) {
    this.rows.laidOut();
    this.paintStrip();
    this.arrive();
    while (this.loaded < this.count) {
      const part = await ask(this.loaded).catch(() => null);
      if (!part) break; // what is there stays, and says how much is loaded
      this.add(part);
      this.arrive();
    }
  }

  get loaded() {
    return this.columns.id?.length ?? 0;
  }

  add(part) {
    for (const [name, values] of Object.entries(part.columns)) {
      this.columns[name] = (this.columns[name] ?? []).concat(values);
    }
    this.repaint();
    this.rows.add(part.columns.piece, part.breaks ?? []);
    const trained = (this.columns.trained ?? []).filter(Boolean).length;
    const rest = this.loaded < this.count ? `, ${number(this.loaded)} loaded` : "";
    replace(this.progress, `${count(this.count, "token")}${rest}, ${number(trained)} trained`);
  }

  arrive() {
    const { from, find } = this.wanted;
    if (find === "down" && !this.found) {
      const index = this.search(-1, 1);
      this.found = index !== null;
      if (this.found) this.rows.choose(index);
    } else if (!find && !this.found && from < this.loaded) {
      this.found = true;
      this.rows.choose(from);
    }
    if (!this.panel.firstChild) this.describe(0);
  }

  repaint() {
    this.painter = painter(this.by, this.columns, this.sources);
    replace(
      this.choices,
      h("legend", "Colour by"),
      CHOICES.map((choice) => this.choice(choice)),
    );
    const absent = this.absent[this.painter.column];
    replace(this.legend, absent ? h("p.quiet", absent) : this.painter.legend());
    this.strip.hidden = Boolean(absent);
    this.rows.refresh();
    this.paintStrip();
  }

  choice({ name, title, column }) {
    const missing = !(column in this.columns);
    return h(
      "label",
      {
        class: missing ? "chip missing" : "chip",
        title: missing ? (this.absent[column] ?? "Not recorded") : null,
      },
      h("input", {
        type: "radio",
        name: "by",
        value: name,
        checked: name === this.by,
        disabled: missing,
        onchange: () => {
          this.by = name;
          note({ by: name });
          this.repaint();
          this.choices.querySelector(`input[value="${name}"]`).focus(); // the one before is gone
        },
      }),
      title,
    );
  }

  paint(index) {
    return `${this.painter.style(index)}${this.columns.trained?.[index] ? " trained" : ""}`;
  }

  label(index) {
    return `${this.columns.piece[index]}, ${this.sources[this.columns.source[index]]}${this.columns.trained?.[index] ? ", trained" : ""}`.slice(
      0,
      200,
    );
  }

  /** Go to the next token that was made less likely, forwards or backwards. */
  next(direction) {
    const index = this.search(this.rows.at, direction);
    if (index !== null) this.rows.choose(index);
    this.rows.box.focus();
  }

  search(start, direction) {
    const { advantage = [], trained = [] } = this.columns;
    for (let index = start + direction; index >= 0 && index < this.loaded; index += direction) {
      if (trained[index] && advantage[index] < 0) return index;
    }
    return null;
  }

  describe(index) {
    const at = (name) => this.columns[name]?.[index] ?? null;
    const reason = at("reason");
    const rows = [
      ["Token", number(index)],
      ["Id", String(at("id") ?? "–")],
      ["Source", this.sources[at("source")]],
      ["Turn", at("turn") === null ? null : number(at("turn") + 1)],
      [
        "Policy version",
        at("version") === null || at("version") < 0 ? null : String(at("version")),
      ],
      ["Context", at("context") === null ? null : number(at("context") + 1)],
      ["Advantage", at("advantage") === null ? null : signed(at("advantage"), 4)],
      ["Log-prob. sampled", at("logprob") === null ? null : likelihood(at("logprob"))],
      [
        "Log-prob. trained",
        at("trained_logprob") === null ? null : likelihood(at("trained_logprob")),
      ],
      ["Gap", at("gap") === null ? null : signed(at("gap"), 4)],
      ["Ratio", at("ratio") === null ? null : number(at("ratio"), 5)],
      ["Value", number(at("value"), 4)],
      ["Entropy (nats)", number(at("entropy"), 4)],
      ["Share of the update's loss", number(at("loss_weight"), 4)],
    ].filter(([, value]) => value !== null && value !== undefined && value !== "–");
    const {
      run,
      parts: [file, row],
    } = this.route;
    replace(
      this.panel,
      h(
        "p.piece",
        JSON.stringify(at("piece") ?? "")
          .slice(1, -1)
          .slice(0, 400) || "∅",
      ),
      this.verdict(at("trained"), at("advantage"), reason),
      h(
        "dl",
        rows.map(([name, value]) => h("div", h("dt", name), h("dd", value))),
      ),
      link(
        to.tokens(run, file, row, { by: this.by, from: index }),
        { class: "permanent" },
        "Link to this token",
      ),
    );
  }

  verdict(trained, advantage, reason) {
    if (reason !== null) return h("p.reason", h("strong", "No gradient. "), this.reasons[reason]);
    if (!trained) return null;
    if (!advantage) return h("p.reason", "In the loss.");
    return h(
      "p.reason",
      h("span", { class: `swatch ${advantage < 0 ? "down5" : "up5"}`, "aria-hidden": "true" }),
      h("strong", advantage < 0 ? "Trained down: " : "Trained up: "),
      advantage < 0
        ? "its advantage is below 0, so the update lowers its probability."
        : "its advantage is above 0, so the update raises its probability.",
    );
  }

  /** The whole episode as one strip of colours, to jump about in. */
  paintStrip() {
    const width = Math.min(4000, Math.max(1, this.loaded));
    this.strip.width = width;
    const drawing = this.strip.getContext("2d");
    const probe = h("i"); // a canvas knows no classes: their colours are read from an element
    this.element.append(probe);
    const colours = new Map();
    for (let x = 0; x < width; x++) {
      const style = this.painter.style(Math.floor((x * this.loaded) / width));
      if (!colours.has(style)) {
        probe.className = `token ${style}`;
        colours.set(style, getComputedStyle(probe).backgroundColor);
      }
      drawing.fillStyle = colours.get(style);
      drawing.fillRect(x, 0, 1, 1);
    }
    probe.remove();
  }

  jump(event) {
    const box = this.strip.getBoundingClientRect();
    this.rows.choose(Math.floor((this.loaded * (event.clientX - box.left)) / box.width));
  }
}

/** A log-probability with its probability. */
function likelihood(logprob) {
  const share = 100 * Math.exp(logprob);
  return `${number(logprob)}\u00a0(${share >= 99.95 && share < 100 ? ">99.9" : number(share)}%)`;
}
