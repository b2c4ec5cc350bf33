// Acting in the run's environment by hand: what the agent sees, its tools as forms, the verdict.

import { api } from "./api.js";
import { append, h, longText, notice, replace } from "./dom.js";
import { fileTitle, plain } from "./format.js";

export async function show(route, signal) {
  const data = await api.environments(signal);
  const area = h("div.conversation", { "aria-live": "polite" });
  const said = h("div");
  const begin = alone(async (start) => {
    replace(said);
    try {
      new Game(area, await api.play({ run: route.run, ...start }));
    } catch (error) {
      replace(said, notice("It did not begin", error.message, "error"));
    }
  });
  const element = h(
    "div",
    h("div.heading", h("h1", "Play")),
    !data.environments?.length
      ? notice("Playing is not possible here", "This run names no environment that can be played.")
      : [
          h("p.lead", "Be the policy yourself, with the same tools and the same verdict."),
          starts(route.query, begin),
          said,
        ],
    area,
  );
  return { title: "Play", element };
}

/** Ways to begin: a recorded episode, from the turn that the address names, or a task. */
function starts(query, begin) {
  const submit = (event) => {
    event.preventDefault();
    const { task, seed } = Object.fromEntries(new FormData(event.currentTarget));
    begin({ task, seed: Number(seed) });
  };
  const [file, row, turn] = ["file", "row", "turn"].map((name) => query.get(name));
  return [
    file === null
      ? null
      : h(
          "p",
          h(
            "button",
            {
              type: "button",
              onclick: () => begin({ file, row: Number(row), turn: Number(turn) }),
            },
            `Play on from turn ${Number(turn) + 1} of episode ${row}, ${fileTitle(file)}`,
          ),
        ),
    h(
      "form.filters",
      { onsubmit: submit },
      h(
        "label.field",
        h("span", "Task: id or number"),
        h("input", { name: "task", autocomplete: "off", placeholder: "any" }),
      ),
      h(
        "label.field",
        h("span", "Seed"),
        h("input", { name: "seed", type: "number", min: 0, value: "0", required: true }),
      ),
      h("div.form-end", h("button", { type: "submit" }, "Begin")),
    ),
  ];
}

/** The work, which is not begun again while it is under way. */
function alone(work) {
  let busy = false;
  return async (...given) => {
    if (busy) return;
    busy = true;
    try {
      await work(...given);
    } finally {
      busy = false;
    }
  };
}

class Game {
  constructor(area, start) {
    this.area = area;
    this.session = start.session;
    this.tools = start.tools ?? [];
    this.form = h("div.play");
    replace(area, this.form);
    this.shown(start, start.turn ? `After turn ${start.turn}` : "Task");
  }

  say(name, text, kind = "observation") {
    this.form.before(
      h(
        "div",
        { class: `said ${kind}` },
        h("p.speaker", name),
        longText(plain(text), { class: "text" }),
      ),
    );
  }

  /** The recorded turn that would follow, a form for each tool, and one for an answer in words. */
  ask(recorded) {
    append(this.form, [
      typeof recorded === "string"
        ? h(
            "div.play-tool",
            h("h3", "The recorded turn"),
            longText(recorded, { class: "code" }, 1500),
            h(
              "div.form-end",
              h(
                "button",
                { type: "button", onclick: () => this.onward(recorded) },
                "Do as recorded",
              ),
            ),
          )
        : null,
      this.tools.map((tool) => this.toolForm(tool)),
      h(
        "form.play-tool",
        {
          onsubmit: (event) => this.submit(event, (values) => ({ text: values.text })),
        },
        h(
          "label.field.wide",
          h("span", "Write, or answer"),
          h("textarea", { name: "text", rows: 2, required: true }),
        ),
        h("div.form-end", h("button", { type: "submit" }, "Send"), this.backButton()),
      ),
    ]);
  }

  backButton() {
    const act = () => this.back();
    return h("button.quiet", { type: "button", onclick: act }, "One turn back");
  }

  toolForm(tool) {
    const schema = tool.schema?.parameters ?? tool.schema ?? {};
    const properties = Object.entries(schema.properties ?? {});
    return h(
      "form.play-tool",
      {
        onsubmit: (event) =>
          this.submit(event, (values) => ({
            calls: [{ name: tool.name, arguments: converted(values, schema) }],
          })),
      },
      h("h3", tool.name),
      tool.schema?.description ? h("p.quiet", tool.schema.description) : null,
      properties.map(([name, kind]) =>
        h(
          "label.field",
          h("span", name),
          kind.enum
            ? h(
                "select",
                { name },
                kind.enum.map((value) => h("option", { value }, value)),
              )
            : h("input", {
                name,
                autocomplete: "off",
                required: (schema.required ?? []).includes(name),
                placeholder: kind.description ?? "",
              }),
        ),
      ),
      h("div.form-end", h("button", { type: "submit" }, `Call ${tool.name}`)),
    );
  }

  async submit(event, action) {
    event.preventDefault();
    const given = action(Object.fromEntries(new FormData(event.currentTarget)));
    await this.waited(async () => {
      this.say(
        "You",
        given.text ?? `${given.calls[0].name}(${JSON.stringify(given.calls[0].arguments)})`,
        "agent",
      );
      this.shown(await api.act(this.session, given));
    });
  }

  async onward(text) {
    await this.waited(async () => {
      this.say("As recorded", text, "agent");
      this.shown(await api.onward(this.session));
    });
  }

  shown(answer, name = "Observation") {
    if (answer.observation) this.say(name, answer.observation);
    replace(this.form, otherwise(answer.differs));
    if (!answer.done) return this.ask(answer.recorded);
    this.say("Verdict", answer.verdict, "verdict");
    return append(this.form, [
      h("p.quiet", "The episode is over; begin another one above."),
      this.backButton(),
    ]);
  }

  async back() {
    await this.waited(async () => {
      this.shown(await api.back(this.session), "Back to");
    });
  }

  /** A request at a time; the focus goes to what takes the place of what had it. */
  waited = alone(async (work) => {
    const had = this.form.contains(document.activeElement) ? nameOf(document.activeElement) : null;
    try {
      await work();
    } catch (error) {
      append(this.form, notice("That did not work", error.message, "error"));
    }
    if (had === null) return;
    const controls = [...this.form.querySelectorAll("button, input, select, textarea")];
    (controls.find((one) => nameOf(one) === had) ?? controls[0]).focus();
  });
}

const nameOf = (control) => control.name || control.textContent;

/** The recorded turns to which the environment has answered otherwise; null for none. */
function otherwise(turns) {
  if (!turns.length) return null;
  const which = turns.length === 1 ? `Turn ${turns[0]} was` : `Turns ${turns.join(", ")} were`;
  return notice("Not as recorded", `${which} answered otherwise than recorded.`, "warn");
}

/** Fields as the tool's schema wants them; what is no JSON stays text. */
function converted(values, schema) {
  return Object.fromEntries(
    Object.entries(values)
      .filter(([, value]) => value !== "")
      .map(([name, value]) => {
        if ((schema.properties?.[name]?.type ?? "string") === "string") return [name, value];
        try {
          return [name, JSON.parse(value)];
        } catch {
          return [name, value];
        }
      }),
  );
}
