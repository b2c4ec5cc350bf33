// Episodes found by text, outcome, reward, tool, error or step; the address keeps the question.
// Chosen ones can be taken away as files.

import { api } from "./api.js";
import { append, h, link, notice, replace } from "./dom.js";
import { exports } from "./episode.js";
import { count, fileTitle, number, outcomeTitle } from "./format.js";
import { outcomeBadge } from "./marks.js";
import { to } from "./router.js";

const LIMIT = 50;
const OUTCOMES = [
  "success",
  "failure",
  "truncated_turns",
  "truncated_tokens",
  "truncated_context",
  "truncated_tool_calls",
  "truncated_time",
  "agent_parse_error",
  "agent_abort",
  "agent_resource_limit",
  "infrastructure_reset",
  "infrastructure_step",
  "infrastructure_model",
  "grader_error",
  "grader_timeout",
  "cancelled",
];

export async function show(route, signal) {
  const filters = Object.fromEntries(route.query);
  const ask = (offset) => api.episodes(route.run, { ...filters, offset, limit: LIMIT }, signal);
  const [run, first] = await Promise.all([api.run(route.run, signal), ask(0)]);
  const chosen = new Map();
  const taken = h("div.chosen", { hidden: true });
  const choose = (row, on) => {
    const key = `${row.file}:${row.row}`;
    if (on) chosen.set(key, { file: row.file, row: row.row });
    else chosen.delete(key);
    taken.hidden = chosen.size === 0;
    replace(
      taken,
      h("strong", `${count(chosen.size, "episode")} chosen: `),
      exports(route.run, [...chosen.values()]),
    );
  };
  const element = h(
    "div",
    h("div.heading", h("h1", "Episodes")),
    form(route.run, run, filters),
    taken,
    h(
      "p.quiet",
      { role: "status" },
      `${first.complete ? "" : "At least "}${number(first.total)} found`,
    ),
    first.rows.length
      ? results(route.run, first, ask, choose)
      : notice("Nothing was found", "Ask for less: clear one of the fields."),
  );
  return { title: `Episodes, ${run.name}`, element, live: false };
}

function form(id, run, filters) {
  const field = (name, title, type = "search", more = {}) =>
    h(
      "label",
      { class: `field field-${name}` },
      h("span", title),
      h("input", { type, name, value: filters[name] ?? "", autocomplete: "off", ...more }),
    );
  const choice = (name, title, options) => {
    const box = h(
      "select",
      { name },
      [["", "any"], ...options].map(([value, text]) => h("option", { value }, text)),
    );
    box.value = filters[name] ?? "";
    if (box.selectedIndex < 0) box.value = "";
    return h("label.field", h("span", title), box);
  };
  const submit = (event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(event.currentTarget));
    const target = to.search(id, values);
    if (target === location.hash) return;
    location.hash = target.slice(1);
  };
  const files = run.files.map((file) => [file.name, fileTitle(file.name)]);
  return h(
    "form.filters",
    {
      role: "search",
      onsubmit: submit,
      onchange: (event) => {
        if (event.target.tagName === "SELECT") event.currentTarget.requestSubmit();
      },
    },
    field("text", "Text"),
    choice("file", "Where", files),
    choice("success", "Success", [
      ["true", "succeeded"],
      ["false", "did not succeed"],
    ]),
    choice(
      "outcome",
      "Outcome",
      OUTCOMES.map((outcome) => [outcome, outcomeTitle(outcome)]),
    ),
    field("tool", "Tool"),
    field("error", "Error"),
    field("low", "Reward from", "number", { step: "any" }),
    field("high", "to", "number", { step: "any" }),
    h(
      "div.form-end",
      h("button", { type: "submit" }, "Search"),
      link(to.search(id), { class: "button quiet" }, "Clear"),
    ),
  );
}

function results(id, first, ask, choose) {
  const list = h("ol.found");
  const more = h("button.quiet", { type: "button" });
  let next = null;
  const add = (part) => {
    append(
      list,
      part.rows.map((row) => line(id, row, choose)),
    );
    next = part.next;
    more.hidden = next === null || next === undefined;
    const left = part.total - list.children.length;
    more.textContent = part.complete && left > 0 ? `Show more (${number(left)} left)` : "Show more";
  };
  more.addEventListener("click", async () => {
    more.disabled = true;
    try {
      add(await ask(next));
    } catch (error) {
      more.after(notice("Not loaded", error.message, "error"));
    }
    more.disabled = false;
  });
  add(first);
  return [list, more];
}

function line(id, row, choose) {
  const place = `${fileTitle(row.file)}, episode ${row.row}`;
  return h(
    "li",
    h("input", {
      type: "checkbox",
      "aria-label": `Choose ${place}`,
      onchange: (event) => choose(row, event.target.checked),
    }),
    h(
      "div.found-main",
      link(
        to.episode(id, row.file, row.row),
        { class: "found-title" },
        row.prompt || row.detail || row.task || place,
      ),
      h(
        "p.quiet",
        [
          place,
          row.detail && row.prompt ? row.detail : null,
          count(row.turns, "turn"),
          count(row.tool_calls, "call"),
          count(row.tokens, "token"),
          row.note ? "has a note" : null,
        ]
          .filter(Boolean)
          .join(" · "),
      ),
    ),
    outcomeBadge(row.outcome, row.success),
    h("span.found-reward", number(row.reward, 3)),
  );
}
