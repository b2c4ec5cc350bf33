// Lines of tokens in a box that scrolls: only lines within sight are in the document, so that an
// episode may have any length.

import { h, setStyle } from "./dom.js";
import { visible } from "./format.js";

const LINE = 30; // pixels; as in tokens.css
const BEYOND = 8; // lines above and below the visible ones
const MOST = 60; // characters of one token that are drawn
const PADDING = 0.5; // columns

/** A list of tokens. `style(index)` gives the class of a token, `label(index)` its words for screen
 * readers, `chosen(index)` is called when one is pointed at or reached by keys. */
export class TokenRows {
  constructor({ style, label, chosen }) {
    this.style = style;
    this.label = label;
    this.chosen = chosen;
    this.texts = [];
    this.lines = [];
    this.drawn = new Map(); // elements by the number of their line
    this.at = 0;
    this.inner = h("div.token-inner", { role: "presentation" });
    this.box = h(
      "div.tokens",
      {
        tabindex: 0,
        role: "listbox",
        "aria-label": "Tokens; arrow keys move, Home and End jump",
        onscroll: () => this.later(),
        onkeydown: (event) => this.key(event),
        onpointerover: (event) => this.pointed(event),
        onpointerleave: () => this.chosen(this.at),
        onclick: (event) => this.pointed(event),
        onfocus: () => this.choose(this.at, false),
      },
      this.inner,
    );
    this.observer = new ResizeObserver(() => this.laidOut());
    this.observer.observe(this.box);
  }

  leave() {
    this.observer.disconnect();
  }

  /** Add tokens at the end. `pieces`: texts; `breaks`: indices that begin a new part. */
  add(pieces, breaks) {
    for (const piece of pieces) this.texts.push(shown(piece));
    this.breaks = new Set([...(this.breaks ?? []), ...breaks]);
    this.laidOut();
  }

  /** Break the tokens into lines, by columns of one character's width. */
  laidOut() {
    const width = this.box.clientWidth - 24;
    if (width <= 0) return;
    const columns = Math.max(10, Math.floor(width / characterWidth(this.box)));
    const lines = [];
    let start = 0,
      used = 0;
    const end = (index) => {
      if (index > start) lines.push([start, index]);
      [start, used] = [index, 0];
    };
    this.texts.forEach((text, index) => {
      const size = text.columns;
      const fits = used + size <= columns || (text.ends && size < 2); // no line of a line break alone
      if (this.breaks.has(index) || !fits) end(index);
      used += size;
      if (text.ends) end(index + 1);
    });
    end(this.texts.length);
    this.lines = lines;
    setStyle(this.inner, { height: `${lines.length * LINE}px` });
    setStyle(this.box, { "--content": `${lines.length * LINE + 26}px` });
    this.refresh();
  }

  later() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.draw();
    });
  }

  /** Draw again, after colours have changed. */
  refresh() {
    this.inner.replaceChildren();
    this.drawn.clear();
    this.draw();
  }

  /** Draw the lines that have come into sight, and remove those that have left it. */
  draw() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / LINE) - BEYOND);
    const last = Math.min(
      this.lines.length,
      Math.ceil((this.box.scrollTop + this.box.clientHeight) / LINE) + BEYOND,
    );
    for (const [number, line] of this.drawn) {
      if (number >= first && number < last) continue;
      line.remove();
      this.drawn.delete(number);
    }
    for (let number = first; number < last; number++) {
      if (this.drawn.has(number)) continue;
      const line = this.line(...this.lines[number], number);
      this.drawn.set(number, line);
      this.inner.append(line);
    }
  }

  line(start, end, number) {
    const tokens = [];
    for (let index = start; index < end; index++) {
      tokens.push(
        h(
          "span",
          {
            id: `token-${index}`,
            class: `token ${this.style(index)}`,
            role: "option",
            "aria-label": this.label(index),
            "aria-selected": index === this.at,
            "aria-setsize": this.texts.length,
            "aria-posinset": index + 1,
            "data-index": index,
          },
          this.texts[index].text,
        ),
      );
    }
    return h(
      "div",
      {
        class: this.breaks.has(start) && start > 0 ? "token-line part" : "token-line",
        role: "presentation",
        style: { top: `${number * LINE}px` },
      },
      tokens,
    );
  }

  /** The line of a token, by halving. */
  lineOf(index) {
    let low = 0,
      high = this.lines.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.lines[middle][0] <= index) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** Make a token the current one, and scroll to it. */
  choose(index, scroll = true) {
    if (!this.texts.length) return;
    this.mark(false);
    this.at = Math.min(Math.max(index, 0), this.texts.length - 1);
    if (scroll) {
      const top = this.lineOf(this.at) * LINE;
      const { scrollTop, clientHeight } = this.box;
      if (top < scrollTop || top + LINE > scrollTop + clientHeight)
        this.box.scrollTop = top - clientHeight / 3;
    }
    this.draw();
    this.mark(true);
    this.box.setAttribute("aria-activedescendant", `token-${this.at}`);
    this.chosen(this.at);
  }

  mark(on) {
    this.inner.querySelector(`#token-${this.at}`)?.setAttribute("aria-selected", String(on));
  }

  pointed(event) {
    const token = event.target.closest?.(".token");
    if (!token) return;
    const index = Number(token.dataset.index);
    if (event.type === "click") this.choose(index, false);
    else this.chosen(index);
  }

  key(event) {
    const page = Math.floor(this.box.clientHeight / LINE) - 1;
    const moves = {
      ArrowLeft: () => this.at - 1,
      ArrowRight: () => this.at + 1,
      ArrowUp: () => this.above(-1),
      ArrowDown: () => this.above(1),
      PageUp: () => this.above(-page),
      PageDown: () => this.above(page),
      Home: () => 0,
      End: () => this.texts.length - 1,
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.choose(moves[event.key]());
  }

  /** The token that stands as far into a line some lines away. */
  above(lines) {
    const line = this.lineOf(this.at);
    const target = Math.min(Math.max(line + lines, 0), this.lines.length - 1);
    const [start, end] = this.lines[target];
    return Math.min(end - 1, start + this.at - this.lines[line][0]);
  }
}

/** How a piece is drawn: its text, width in columns, and whether a line ends with it. */
function shown(piece) {
  let text = visible(piece ?? "");
  if (text.length > MOST) text = `${text.slice(0, MOST - 1)}…`;
  if (text === "") text = "∅";
  let columns = PADDING;
  for (const character of text) columns += wide(character.codePointAt(0)) ? 2 : 1;
  return { text, columns, ends: Boolean(piece?.includes("\n")) };
}

/** Whether a character takes two columns (East Asian scripts, pictographs). */
function wide(code) {
  return (
    (code >= 0x1100 && code <= 0x115f) ||
    (code >= 0x2e80 && code <= 0xa4cf) ||
    (code >= 0xac00 && code <= 0xd7a3) ||
    (code >= 0xf900 && code <= 0xfaff) ||
    (code >= 0xfe30 && code <= 0xfe6f) ||
    (code >= 0xff00 && code <= 0xff60) ||
    code >= 0x1f300
  );
}

function characterWidth(box) {
  const probe = h("span.token.probe", "0".repeat(100));
  box.append(probe);
  const width = (probe.getBoundingClientRect().width - 4) / 100;
  probe.remove();
  return width || 8;
}
