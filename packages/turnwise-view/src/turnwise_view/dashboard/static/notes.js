// Notes of one's own on episodes; the server keeps them beside the run.

import { api } from "./api.js";
import { h, link, notice, replace } from "./dom.js";
import { fileTitle, moment } from "./format.js";
import { to } from "./router.js";

export async function show(route, signal) {
  const { notes } = await api.notes(route.run, signal);
  const element = h(
    "div",
    h("div.heading", h("h1", "Notes")),
    notes.length
      ? h(
          "ol.notes",
          notes.map((one) =>
            h(
              "li.card",
              h(
                "p",
                link(
                  to.episode(route.run, one.file, one.row),
                  `${fileTitle(one.file)}, episode ${one.row}`,
                ),
                " ",
                h("span.quiet", moment(one.written)),
              ),
              h("p.note-text", one.text),
            ),
          ),
        )
      : notice(
          "No notes yet",
          "Write one below any episode; it is kept beside the run, never in it.",
        ),
  );
  return { title: "Notes", element };
}

/** A field to write a note in. */
export function noteBox(run, file, row, text) {
  const box = h("textarea", {
    rows: 3,
    maxlength: 10000,
    "aria-label": "Note on this episode",
    value: text ?? "",
  });
  const said = h("span.quiet", { role: "status" });
  const save = async (event) => {
    event.preventDefault();
    replace(said, "Saving …");
    try {
      await api.writeNote(run, { file, row, text: box.value });
      replace(said, "Saved beside the run.");
    } catch (error) {
      replace(said, error.message);
    }
  };
  return h(
    "form.note-box",
    { onsubmit: save },
    box,
    h("div.form-end", h("button", { type: "submit" }, "Save the note"), said),
  );
}
