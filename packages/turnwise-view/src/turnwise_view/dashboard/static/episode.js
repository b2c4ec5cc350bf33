// One episode as a conversation: why it ended as it did, each turn with its calls and its credit.

import { api } from "./api.js";
import { outcomeClass } from "./colours.js";
import { h, link, longText, notice } from "./dom.js";
import { count, duration, fileTitle, number, percent, plain, signed } from "./format.js";
import { badge, creditBar, facts, outcomeBadge } from "./marks.js";
import { noteBox } from "./notes.js";
import { to } from "./router.js";

export async function show(route, signal) {
  const [file, row] = route.parts;
  const one = await api.episode(route.run, file, row, signal);
  const address = (values) => to.tokens(route.run, file, row, values);
  const element = h(
    "article.episode",
    heading(route, one),
    why(one, address),
    measured(one),
    siblings(route, one),
    h(
      "section.conversation",
      h("h2", "Conversation"),
      said("Task", "task", longText(one.prompt ?? "", { class: "text" }), pictures(one, null)),
      credit(one),
      one.turns.map((turn) =>
        turnCard(turn, one, to.play(route.run, { file, row, turn: turn.index })),
      ),
      verdict(one),
    ),
    h("section", h("h2", "Your note"), noteBox(route.run, one.file, one.row, one.note)),
  );
  return {
    title: `Episode ${row}, ${fileTitle(file)}`,
    element,
    keys: {
      k: address(),
      g: to.group(route.run, file, one.group),
    },
  };
}

/** The head that both views of an episode share. */
export function heading(route, one, open = "conversation") {
  const [file, row] = route.parts;
  const tab = (name, title, target) =>
    link(target, { class: "button quiet", "aria-current": name === open ? "page" : null }, title);
  return h(
    "div.heading",
    h("h1", `Episode ${row}`),
    outcomeBadge(one.outcome, one.success),
    h(
      "div.actions.segmented",
      tab("conversation", "Conversation", to.episode(route.run, file, row)),
      tab("tokens", "Tokens", to.tokens(route.run, file, row)),
      one.group ? tab("group", "Side by side", to.group(route.run, file, one.group)) : null,
      h("details.menu", h("summary.button.quiet", "Export"), exports(route.run, [{ file, row }])),
    ),
  );
}

/** Downloads of chosen episodes. */
export function exports(run, chosen) {
  const formats = [
    ["html", "A page"],
    ["parquet", "Parquet"],
    ["atif", "ATIF"],
    ["sft", "SFT data"],
  ];
  return h(
    "ul.links",
    formats.map(([format, title]) =>
      h("li", h("a", { href: api.exported(run, format, chosen), download: true }, title)),
    ),
  );
}

function why(one, address) {
  const down = one.trained_down ?? {};
  const turns = (down.turns ?? []).map((index) => index + 1);
  return h(
    "section.why",
    h(
      "h2",
      one.success
        ? "Why it succeeded"
        : one.graded === false
          ? "Why it has no grade"
          : "Why it failed",
    ),
    one.why.map((sentence) => h("p", sentence)),
    down.tokens
      ? h(
          "p.down-line",
          h(
            "span",
            h("span.swatch.down5", { "aria-hidden": "true" }),
            ` ${count(down.tokens, "token")} trained down`,
            turns.length ? ` in turn${turns.length > 1 ? "s" : ""} ${turns.join(", ")}.` : ".",
          ),
          link(address({ by: "advantage", find: "down" }), { class: "button" }, "Show them"),
        )
      : h("p.quiet", "No token was trained down. ", link(address(), "Show its tokens")),
  );
}

function measured(one) {
  const parts = Object.entries(one.parts ?? {})
    .map(([name, value]) => `${name} ${plain(value)}`)
    .join(" · ");
  return facts([
    ["Reward", reward(one)],
    ["Penalty", one.penalty ? number(one.penalty) : null],
    ["Parts", parts],
    ["Answer", one.answer],
    ["Turns", number(one.turns.length)],
    ["Contexts", one.contexts.length > 1 ? number(one.contexts.length) : null],
    ["Policy version", plain(one.version)],
    ["Share of the update's loss", one.weight === null ? null : percent(one.weight)],
    ["Task", one.task],
  ]);
}

/** The whole reward, and what it is made of where turns have rewards of their own. */
function reward(one) {
  if (!one.graded || !one.turn_rewards?.length) return number(one.reward);
  const turns = one.turn_rewards.reduce((sum, value) => sum + value, 0);
  return `${number(one.reward)} (outcome ${number(one.reward - turns)}, turns ${number(turns)})`;
}

function siblings(route, one) {
  const all = one.siblings ?? [];
  if (all.length < 2) return null;
  return h(
    "nav.siblings",
    { "aria-label": "Episodes of the same task" },
    h("span.quiet", "Same task"),
    all.map((other) =>
      link(
        to.episode(route.run, one.file, other.row),
        {
          class: `tile ${outcomeClass(other.outcome)}`,
          "aria-current": String(other.row) === String(one.row) ? "page" : null,
          "aria-label": `Episode ${other.episode}: ${other.outcome}, reward ${number(other.reward)}`,
        },
        number(other.reward, 2),
      ),
    ),
  );
}

/** What every turn was credited with, as bars from a middle line. */
function credit(one) {
  const means = one.turns.map((turn) => turn.credit?.advantage_mean);
  if (!means.some(Number.isFinite)) return null;
  const most = Math.max(...means.filter(Number.isFinite).map(Math.abs));
  return h(
    "div.credits",
    h("h3", "Credit of the turns"),
    h(
      "p.quiet",
      "Mean advantage of the turn's tokens: right of the line they were made more likely, left of it less. " +
        "The sum is larger the more tokens a turn has, and says nothing about which turn was best.",
    ),
    h(
      "ol",
      one.turns.map((turn, index) =>
        h(
          "li",
          h(
            "a",
            { href: `#turn-${index}`, onclick: (event) => jump(event, `turn-${index}`) },
            `Turn ${index + 1}`,
          ),
          creditBar(means[index], most, "Mean credit"),
          h(
            "span.quiet",
            `${count(turn.credit?.tokens ?? 0, "token")}, sum ${signed(turn.credit?.advantage_sum)}`,
          ),
        ),
      ),
    ),
  );
}

function jump(event, id) {
  event.preventDefault();
  const target = document.getElementById(id);
  target.scrollIntoView({ block: "start" });
  target.focus({ preventScroll: true });
}

function turnCard(turn, one, play) {
  const calls = turn.calls ?? [];
  const repeated =
    Boolean(turn.observation) &&
    calls.every(({ result }) => typeof result !== "string" || turn.observation.includes(result));
  return h(
    "section.turn",
    {
      id: `turn-${turn.index}`,
      tabindex: "-1",
      "aria-label": `Turn ${turn.index + 1}`,
    },
    h(
      "header",
      h("h3", `Turn ${turn.index + 1}`),
      Number.isFinite(turn.reward) ? badge(`reward ${signed(turn.reward)}`, "ungraded") : null,
      Number.isFinite(turn.credit?.advantage_mean)
        ? badge(
            `credit ${signed(turn.credit.advantage_mean)}`,
            ["lower", "ungraded", "raise"][1 + Math.sign(turn.credit.advantage_mean)],
          )
        : null,
      link(play, { class: "play-on" }, "Play from here"),
    ),
    turn.thinking ? said("Thinking", "thinking", longText(turn.thinking, { class: "text" })) : null,
    calls.map((one) => call(one, repeated)),
    turn.answer ? said("Answer", "agent", longText(turn.answer, { class: "text" })) : null,
    turn.error ? notice("This turn could not be read as an action", turn.error, "warn") : null,
    written(turn, calls.length > 0 || Boolean(turn.answer)),
    turn.observation
      ? said(
          turn.source ? `Observation (${turn.source})` : "Observation",
          "observation",
          longText(turn.observation, { class: "text" }),
        )
      : null,
    pictures(one, turn.index),
  );
}

/** What the policy wrote, word for word: at hand below what was understood of it. */
function written(turn, understood) {
  if (!turn.text) return null;
  const text = longText(turn.text, { class: understood ? "code" : "text" });
  return understood
    ? h("details.raw", h("summary", "As it was written"), text)
    : said("Agent", "agent", text);
}

function said(name, kind, text, more = null) {
  return h("div", { class: `said ${kind}` }, h("p.speaker", name), text, more);
}

function call(one, repeated) {
  const given = Object.entries(one.arguments ?? {});
  return h(
    "div.said.tool",
    h(
      "p.speaker",
      "Call ",
      h("code", one.name),
      " ",
      one.ok === null || one.ok === undefined
        ? null
        : badge(one.ok ? "worked" : "failed", one.ok ? "good" : "bad"),
      Number.isFinite(one.seconds) ? h("span.quiet", ` ${duration(one.seconds)}`) : null,
    ),
    given.length
      ? h(
          "dl.arguments",
          given.map(([name, value]) =>
            h(
              "div",
              h("dt", name),
              h(
                "dd",
                longText(
                  typeof value === "string" ? value : JSON.stringify(value, null, 2),
                  { class: "code" },
                  1500,
                ),
              ),
            ),
          ),
        )
      : null,
    !repeated && one.result
      ? [h("p.speaker", "Result"), longText(one.result, { class: "code" })]
      : null,
  );
}

function pictures(one, turn) {
  return one.images
    .filter((image) => image.turn === (turn ?? -1))
    .map((image) =>
      h("img.picture", {
        src: image.url,
        alt: turn === null ? "Picture of the task" : `Picture of turn ${turn + 1}`,
        loading: "lazy",
      }),
    );
}

function verdict(one) {
  if (!one.verdict && !one.problem) return null;
  return h(
    "div.said.verdict",
    h("p.speaker", "Verdict"),
    one.verdict ? longText(one.verdict, { class: "text" }) : null,
    one.problem ? notice("Problem", one.problem, "warn") : null,
  );
}
