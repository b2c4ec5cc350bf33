// The episodes of one task beside each other, with the first difference marked, and how they
// branch.

import { api } from "./api.js";
import { h, link, longText, notice, replace, svg } from "./dom.js";
import { fileTitle, number, plain } from "./format.js";
import { outcomeClass } from "./colours.js";
import { outcomeBadge } from "./marks.js";
import { to } from "./router.js";

const AT_FIRST = 4;

export async function show(route, signal) {
  const [file, name] = route.parts;
  const group = await api.group(route.run, file, name, signal);
  const chosen = new Set(group.episodes.slice(0, AT_FIRST).map((one) => one.row));
  const columns = h("div.scroll", {
    tabindex: "0",
    role: "region",
    "aria-label": "Episodes side by side",
  });
  const draw = () =>
    replace(
      columns,
      sideBySide(
        route.run,
        file,
        group.episodes.filter((one) => chosen.has(one.row)),
        group.episodes[0]?.episode,
      ),
    );
  draw();
  const element = h(
    "div",
    h("div.heading", h("h1", "Side by side")),
    h("p.lead", group.prompt || group.task),
    picker(group, chosen, draw),
    branched(group) ? h("section", h("h2", "Branches"), tree(route.run, file, group)) : null,
    columns,
  );
  return { title: `Group, ${fileTitle(file)}`, element };
}

function picker(group, chosen, draw) {
  return h(
    "fieldset.legend",
    h("legend", `${group.episodes.length} episodes`),
    group.episodes.map((one) =>
      h(
        "label.check",
        h("input", {
          type: "checkbox",
          checked: chosen.has(one.row),
          onchange: (event) => {
            if (event.target.checked) chosen.add(one.row);
            else chosen.delete(one.row);
            draw();
          },
        }),
        `${one.episode} `,
        h(
          "span",
          { class: `tile ${outcomeClass(one.outcome, one.outcome === "success")}` },
          number(one.reward, 2),
        ),
      ),
    ),
  );
}

function sideBySide(run, file, episodes, first) {
  if (!episodes.length) return notice("No episode is chosen", "Mark some above.");
  const turns = Math.max(...episodes.map((one) => one.turns.length));
  const rows = [...Array(turns).keys()].map((turn) =>
    h(
      "tr",
      h("th", { scope: "row" }, `Turn ${turn + 1}`),
      episodes.map((one) => cell(run, file, one, turn, first)),
    ),
  );
  return h(
    "table.beside",
    h("caption.unseen", "Episodes of one task, turn by turn"),
    h(
      "thead",
      h(
        "tr",
        h("td"),
        episodes.map((one) =>
          h(
            "th",
            { scope: "col" },
            link(to.episode(run, file, one.row), `Episode ${one.episode}`),
            " ",
            outcomeBadge(one.outcome),
            " ",
            h("span.quiet", number(one.reward)),
          ),
        ),
      ),
    ),
    h("tbody", firstMessages(episodes), rows),
  );
}

/** What each was shown first, where that is not the same. */
function firstMessages(episodes) {
  if (episodes.every((one) => one.prompt === episodes[0].prompt)) return null;
  return h(
    "tr",
    h("th", { scope: "row" }, "First message"),
    episodes.map((one) => h("td", longText(one.prompt, { class: "text observation" }, 400))),
  );
}

function cell(run, file, one, index, first) {
  const turn = one.turns[index];
  if (!turn) return h("td.none");
  const differs = one.first_difference;
  const here = differs && differs.turn === index,
    after = differs && index > differs.turn;
  return h(
    "td",
    { class: here ? "differs" : after ? "after" : null },
    here
      ? h(
          "p.mark-line",
          link(to.tokens(run, file, one.row, { from: differs.token }), "First difference"),
          ` from episode ${first}`,
        )
      : null,
    turn.text ? longText(turn.text, { class: "text" }, 600) : null,
    (turn.calls ?? []).map((call) =>
      h("p.call", h("code", call.name), " ", h("span", plain(call.arguments).slice(0, 300))),
    ),
    turn.observation ? longText(turn.observation, { class: "text observation" }, 400) : null,
  );
}

const branched = (group) => group.tree.some((one) => one.parent !== null);

/** Each episode a line from the turn at which it left its parent. */
function tree(run, file, group) {
  const LINE = 26,
    TURN = 60,
    LEFT = 90;
  const ordered = inOrder(group.tree);
  const turns = new Map(group.episodes.map((one) => [one.episode, one]));
  const most = Math.max(...group.episodes.map((one) => one.turns.length), 1);
  const x = (turn) => LEFT + TURN * turn,
    y = (episode) => LINE * (ordered.indexOf(episode) + 0.5);
  const lines = group.tree.map((node) => {
    const one = turns.get(node.episode);
    const begin = node.parent === null ? 0 : node.first_turn;
    const joint =
      begin && ordered.includes(node.parent)
        ? svg("path.joint", { d: `M${x(begin)} ${y(node.parent)}V${y(node.episode)}` })
        : null;
    return svg(
      "a",
      { href: to.episode(run, file, one?.row ?? 0), "aria-label": `Episode ${node.episode}` },
      joint,
      svg("text.tick", { x: 4, y: y(node.episode) + 4 }, `Episode ${node.episode}`),
      svg("line", {
        class: `branch ${outcomeClass(one?.outcome, one?.outcome === "success")}`,
        x1: x(begin),
        x2: x(one?.turns.length ?? begin),
        y1: y(node.episode),
        y2: y(node.episode),
      }),
    );
  });
  return h(
    "div.scroll",
    { tabindex: "0", role: "region", "aria-label": "Tree of branches" },
    svg(
      "svg.tree",
      {
        width: x(most) + 20,
        height: LINE * ordered.length,
        role: "group",
        "aria-label": "Tree of branches",
      },
      lines,
    ),
  );
}

/** Episodes so that each stands below its parent. */
function inOrder(nodes) {
  const known = new Set(nodes.map((node) => node.episode));
  const walk = (node) => [
    node.episode,
    ...nodes.filter((one) => one.parent === node.episode && one !== node).flatMap(walk),
  ];
  return nodes.filter((node) => node.parent === null || !known.has(node.parent)).flatMap(walk);
}
