// One run at a glance: what to look at next, figures, troubles, cost, files, and its recipe.

import { api } from "./api.js";
import { learningCharts } from "./curves.js";
import { h, link, notice, table } from "./dom.js";
import { bytes, capital, count, duration, fileTitle, moment, number, plain } from "./format.js";
import { facts, progress, stateBadge } from "./marks.js";
import { to } from "./router.js";
import { figureLine } from "./runs.js";

export async function show(route, signal) {
  const run = await api.run(route.run, signal);
  const learning = run.has?.metrics
    ? learningCharts(await api.curves(route.run, signal), run.name)
    : [];
  const steps = run.files.filter((file) => file.kind === "step");
  const last = steps[steps.length - 1];
  const element = h(
    "div",
    h("div.heading", h("h1", run.name), stateBadge(run.state)),
    h("p.path", run.path),
    run.trouble ? notice("Trouble", run.trouble, "warn") : null,
    facts([
      [
        "Progress",
        run.steps_planned || run.steps_done ? progress(run.steps_done, run.steps_planned) : null,
      ],
      ["Started", moment(run.started)],
      ["Time", duration(run.seconds)],
      ...Object.entries(run.cost ?? {}).map(([name, value]) => [
        capital(name).replaceAll("_", " "),
        costText(name, value),
      ]),
    ]),
    run.files.length
      ? shortcuts(run, last)
      : notice(
          "No episodes yet",
          "They appear here as soon as the run has written its first step.",
        ),
    learning.length ? section("Does it learn?", h("div.charts", learning)) : null,
    run.figures?.length ? section("Figures", h("ul.figures", run.figures.map(figureLine))) : null,
    run.troubles?.length ? section("Troubles", troubles(run)) : null,
    run.moves?.length
      ? section(
          "Resumed with other settings",
          h(
            "ul",
            run.moves.map((one) => h("li", capital(one))),
          ),
        )
      : null,
    run.files.length ? section("Episodes written", files(run)) : null,
    run.reports?.length
      ? section(
          "Reports",
          h(
            "ul.links",
            run.reports.map((report) =>
              h(
                "li",
                link(to.report(route.run, report.name), report.title),
                " ",
                h("small", report.kind),
              ),
            ),
          ),
        )
      : null,
    section("Recipe", recipe(run)),
  );
  return { title: run.name, element, live: true };
}

function section(name, ...content) {
  return h("section", h("h2", name), content);
}

const costText = (name, value) =>
  name.includes("seconds") && typeof value === "number" ? duration(value) : plain(value);

/** The questions that most readers come with, each one click away. */
function shortcuts(run, last) {
  const file = (last ?? run.files[run.files.length - 1]).name;
  const place = fileTitle(file);
  const all = [
    [
      to.search(run.id, { file, success: "false" }),
      "Why did episodes fail?",
      `Failed episodes of ${place.toLowerCase()}`,
    ],
    [to.step(run.id, file), "What was tried?", `Groups and rewards of ${place.toLowerCase()}`],
    [to.curves(run.id), "Does it learn?", "Success and reward first"],
    run.has?.timing ? [to.timeline(run.id), "Where does time go?", "Timeline of a step"] : null,
  ];
  return h(
    "ul.doors",
    all
      .filter(Boolean)
      .map(([address, name, text]) => h("li", link(address, h("strong", name), h("span", text)))),
  );
}

function troubles(run) {
  return h(
    "ul.troubles",
    run.troubles.map((one) =>
      h(
        "li",
        h("span.when", `Step ${one.step}`),
        h("span", one.sentence),
      ),
    ),
  );
}

function files(run) {
  const newest = run.files.filter((file) => !file.earlier).reverse();
  const left = run.files.length - newest.length;
  const rows = newest.map((file) => [
    link(to.step(run.id, file.name), fileTitle(file.name)),
    number(file.rows),
    bytes(file.bytes),
  ]);
  const shown = table(
    "Episodes written",
    [{ title: "File" }, { title: "Episodes", number: true }, { title: "Size", number: true }],
    rows,
  );
  return rows.length > 12
    ? h(
        "details",
        h("summary", `${count(run.files.length, "file")}, newest first`),
        shown,
        left
          ? h(
              "p.quiet",
              `${count(left, "step")} before: choose them under `,
              link(to.search(run.id), "Episodes"),
              ".",
            )
          : null,
      )
    : shown;
}

/** The recipe: first what differs from the defaults, then all of it. */
function recipe(run) {
  const keys = Object.keys(run.recipe ?? {});
  if (!keys.length) return notice("No recipe", "This folder has none.");
  const changed = new Set(run.changed ?? []);
  const columns = [{ title: "Key" }, { title: "Value", wide: true }];
  const row = (key) => [h("code", key), plain(run.recipe[key])];
  return [
    changed.size ? h("p.quiet", "What differs from the defaults:") : null,
    changed.size
      ? table(
          "What differs from the defaults",
          columns,
          keys.filter((key) => changed.has(key)).map(row),
        )
      : h("p.quiet", "Nothing differs from the defaults."),
    h(
      "details",
      h("summary", `All ${keys.length} keys`),
      table("The whole recipe", columns, keys.map(row)),
    ),
  ];
}
