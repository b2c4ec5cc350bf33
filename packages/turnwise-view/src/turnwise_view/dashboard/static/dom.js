// Elements made by calls: text is always a text node, and styles are set by properties, so that
// nothing in a trajectory can be read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element: `h("p.quiet", { title }, "text", child)`. Classes may stand behind its name; then come
 * attributes (`on…` listeners, `style` as an object, anything else) and children. */
export const h = (name, ...rest) => fill((tag) => document.createElement(tag), name, rest);

/** The same for SVG. */
export const svg = (name, ...rest) => fill((tag) => document.createElementNS(SVG, tag), name, rest);

/** A link within the dashboard. */
export const link = (href, ...rest) => h("a", { href }, ...rest);

function fill(create, name, rest) {
  const [tag, ...classes] = name.split(".");
  const element = create(tag);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const one of rest) {
    if (one && Object.getPrototypeOf(one) === Object.prototype) setAttributes(element, one);
    else append(element, one);
  }
  return element;
}

function setAttributes(element, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    if (key.startsWith("aria-")) element.setAttribute(key, String(value));
    else if (value === false) continue;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style") setStyle(element, value);
    else if (key === "value" && element.tagName !== "LI") element.value = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
}

/** Set CSS properties, custom ones too, without a style attribute in markup. */
export function setStyle(element, properties) {
  for (const [name, value] of Object.entries(properties)) element.style.setProperty(name, value);
}

/** Append strings (as text nodes), elements, and lists of them; null and false are passed over. */
export function append(parent, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replace all that is in an element. */
export function replace(parent, ...children) {
  parent.replaceChildren();
  append(parent, children);
}

/** A table. `columns`: [{title, number?, wide?}]; `rows`: lists of cells (text or elements). */
export function table(caption, columns, rows) {
  const kind = (column) =>
    [column.number && "number", column.wide && "wide"].filter(Boolean).join(" ");
  const cell = (value, index) =>
    h(
      index === 0 ? "th" : "td",
      {
        class: kind(columns[index] ?? {}) || null,
        scope: index === 0 ? "row" : null,
      },
      value,
    );
  return h(
    "div.scroll",
    { tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      h("caption.unseen", caption),
      h(
        "thead",
        h(
          "tr",
          columns.map((column) =>
            h("th", { scope: "col", class: kind(column) || null }, column.title),
          ),
        ),
      ),
      h(
        "tbody",
        rows.map((row) => h("tr", row.map(cell))),
      ),
    ),
  );
}

/** A text that may be huge: its beginning, and a button for more of it. */
export function longText(text, attributes = {}, first = 3000) {
  const area = h("pre", attributes);
  const more = h("button.quiet", { type: "button" });
  let end = 0;
  const grow = (count) => {
    area.append(document.createTextNode(text.slice(end, end + count)));
    end = Math.min(text.length, end + count);
    more.hidden = end >= text.length;
    const left = (text.length - end).toLocaleString("en");
    more.textContent = `Show more (${left} characters left)`;
  };
  more.addEventListener("click", () => grow(20000));
  grow(first);
  return text.length > first ? [area, more] : [area];
}

/** A labelled choice. `options`: [[value, text]]. */
export function select(label, options, value, change) {
  const box = h(
    "select",
    { onchange: () => change(box.value) },
    options.map(([key, text]) => h("option", { value: key }, text)),
  );
  box.value = value;
  return h("label.field", h("span", label), box);
}

/** Something said in place of data: nothing there, or a mistake with its remedy. */
export function notice(title, text, kind = "empty", ...more) {
  return h(
    "div",
    { class: `notice ${kind}`, role: kind === "error" ? "alert" : null },
    h("p.notice-title", title),
    text ? h("p", text) : null,
    more,
  );
}
