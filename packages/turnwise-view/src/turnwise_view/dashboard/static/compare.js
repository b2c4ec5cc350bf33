// Several runs beside each other: what differs in their recipes, and their figures.

import { api } from "./api.js";
import { h, link, notice, table } from "./dom.js";
import { plain } from "./format.js";
import { interval, rate } from "./marks.js";
import { to } from "./router.js";
import { labels } from "./runs.js";

export async function show(route, signal) {
  const ids = (route.query.get("runs") ?? "").split(",").filter(Boolean).map(decodeURIComponent);
  if (ids.length < 2) {
    return {
      title: "Compare",
      element: notice(
        "Choose two runs or more",
        "Mark them in the list of all runs.",
        "empty",
        h("p", link(to.runs(), "All runs")),
      ),
    };
  }
  const data = await api.compare(ids, signal);
  const element = h(
    "div",
    h(
      "div.heading",
      h("h1", `${data.runs.length} runs compared`),
      h(
        "div.actions",
        link(
          to.curves(ids[0], { with: ids.slice(1).map(encodeURIComponent).join(",") }),
          { class: "button" },
          "Their curves",
        ),
      ),
    ),
    h("section", h("h2", "Figures"), figures(data)),
    h("section", h("h2", "Recipe: what differs"), differences(data)),
  );
  return { title: "Compare", element };
}

function heads({ runs }) {
  const called = labels(runs);
  return runs.map((run) => ({ title: link(to.run(run.id), called.get(String(run.id))) }));
}

function figures(data) {
  const names = [...new Set(data.runs.flatMap((run) => run.figures.map((figure) => figure.name)))];
  if (!names.length) return notice("No figures yet", "These runs have not been evaluated.");
  const cell = (run, name) => {
    const figure = run.figures.find((one) => one.name === name);
    return figure ? h("span.stacked", h("span", rate(figure)), interval(figure)) : "–";
  };
  return table(
    "Figures of each run",
    [{ title: "Figure" }, ...heads(data)],
    names.map((name) => [name, ...data.runs.map((run) => cell(run, name))]),
  );
}

function differences(data) {
  const rows = data.recipe.map((row) => [h("code", row.key), ...row.values.map(plain)]);
  return rows.length
    ? table("Keys of the recipe that differ", [{ title: "Key" }, ...heads(data)], rows)
    : notice("Nothing differs", "The recipes are the same.");
}
