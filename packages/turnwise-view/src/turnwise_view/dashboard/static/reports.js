// Reports beside a run: audit, before_run, evaluation, studies. Tables with their figures, text, and
// curves.

import { api } from "./api.js";
import { chart } from "./chart.js";
import { h, link, notice, table } from "./dom.js";
import { plain } from "./format.js";
import { markdown } from "./markdown.js";
import { to } from "./router.js";

const MOST = 200000; // characters of a report

export async function show(route, signal) {
  return route.parts.length ? one(route, signal) : list(route, signal);
}

async function list(route, signal) {
  const { reports } = await api.reports(route.run, signal);
  const element = h(
    "div",
    h("div.heading", h("h1", "Reports")),
    reports.length
      ? h(
          "ul.doors",
          reports.map((report) =>
            h(
              "li",
              link(
                to.report(route.run, report.name),
                h("strong", report.title),
                h("span", report.kind),
              ),
            ),
          ),
        )
      : notice("No reports yet", "Evaluations, audits and studies write one when they are done."),
  );
  return { title: "Reports", element };
}

async function one(route, signal) {
  const report = await api.report(route.run, route.parts[0], signal);
  const element = h(
    "div.report",
    h(
      "div.heading",
      h("h1", report.title),
      h("div.actions", link(to.reports(route.run), { class: "button quiet" }, "All reports")),
    ),
    report.tables.map((part) =>
      h(
        "section",
        h("h2", part.title),
        table(
          part.title,
          columnsOf(part),
          part.rows.map((row) => row.map(plain)),
        ),
      ),
    ),
    report.curves.length
      ? h("section", h("h2", "Curves"), h("div.charts", curves(report)))
      : null,
    report.text ? h("section.written", markdown(report.text.slice(0, MOST))) : null,
  );
  return { title: report.title, element };
}

/** Columns of numbers stand to the right. */
function columnsOf(part) {
  return part.columns.map((column, index) => ({
    title: column,
    wide: index > 0 && part.rows.some((row) => String(row[index]).length > 24),
    number:
      index > 0 &&
      part.rows.every(
        (row) =>
          row[index] === null ||
          row[index] === "–" ||
          typeof row[index] === "number" ||
          /^[–−+\-<]?\s?[\d.]/.test(String(row[index])),
      ),
  }));
}

function curves(report) {
  return report.curves.map((curve) =>
    chart({
      name: curve.title,
      at: "at",
      named: true,
      lines: curve.lines.map((line, index) => ({ kind: index, ...line })),
    }),
  );
}
