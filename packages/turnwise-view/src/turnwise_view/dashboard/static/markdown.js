// The little Markdown that reports are written in, as elements: headings, lists, tables, bold
// words. Everything else stays the text that it is.

import { h, table } from "./dom.js";

/** The elements of a text. */
export function markdown(text) {
  const lines = text.split("\n");
  const found = [];
  let at = 0;
  const block = (belongs) => {
    const start = at;
    while (at < lines.length && belongs(lines[at])) at += 1;
    return lines.slice(start, at);
  };
  while (at < lines.length) {
    const line = lines[at];
    const heading = /^(#+) (.*)$/.exec(line);
    if (line.trim() === "") at += 1;
    else if (heading) {
      found.push(h(heading[1].length < 3 ? "h2" : "h3", heading[2]));
      at += 1;
    } else if (line.startsWith("|")) found.push(asTable(block((one) => one.startsWith("|"))));
    else if (line.startsWith("- ")) {
      found.push(
        h(
          "ul.points",
          block((one) => one.startsWith("- ")).map((one) => h("li", inline(one.slice(2)))),
        ),
      );
    } else
      found.push(
        h("p", inline(block((one) => one.trim() !== "" && !/^(#+ |\||- )/.test(one)).join(" "))),
      );
  }
  return found;
}

function asTable(lines) {
  const cells = (line) =>
    line
      .replace(/^\||\|\s*$/g, "")
      .split("|")
      .map((cell) => cell.trim());
  const [head, , ...rows] = lines.map(cells);
  return table(
    head.join(", "),
    head.map((title) => ({ title })),
    rows.map((row) => row.map(inline)),
  );
}

/** Words between double asterisks are bold. */
function inline(text) {
  return text.split("**").map((part, index) => (index % 2 ? h("strong", part) : part));
}
