// Permanent links: what stands behind `#` names a view and its place, and the other way round.

const quoted = encodeURIComponent;

/** {view, run, parts, query} of a hash such as `#/r/0/episode/step-000015/3/tokens?from=20`. */
export function parse(hash) {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const query = new URLSearchParams(search);
  const parts = path.split("/").filter(Boolean).map(unquoted);
  if (parts.length === 0) return { view: "runs", parts, query };
  if (parts[0] === "compare") return { view: "compare", parts, query };
  if (parts[0] !== "r" || parts.length < 2) return { view: "missing", parts, query };
  const [, run, view = "run", ...rest] = parts;
  const tokens = view === "episode" && rest[2] === "tokens";
  return { view: tokens ? "tokens" : view, run, parts: rest, query };
}

function unquoted(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a `%` that someone typed
  }
}

/** What stands behind `?` for some values; those that say nothing are passed over. */
export function query(values = {}) {
  const pairs = Object.entries(values).filter(
    ([, value]) => value !== "" && value !== null && value !== undefined,
  );
  return pairs.length ? `?${new URLSearchParams(pairs)}` : "";
}

const under = (run, ...parts) => `#/r/${[run, ...parts].map(quoted).join("/")}`;

export const to = {
  runs: () => "#/",
  compare: (ids) => `#/compare${query({ runs: ids.map(quoted).join(",") })}`,
  run: (run) => under(run),
  curves: (run, values) => under(run, "curves") + query(values),
  step: (run, file) => under(run, "step", file),
  episode: (run, file, row) => under(run, "episode", file, row),
  tokens: (run, file, row, values) => under(run, "episode", file, row, "tokens") + query(values),
  group: (run, file, group) => under(run, "group", file, group),
  search: (run, values) => under(run, "search") + query(values),
  timeline: (run, step) =>
    step === undefined ? under(run, "timeline") : under(run, "timeline", step),
  reports: (run) => under(run, "reports"),
  report: (run, name) => under(run, "reports", name),
  notes: (run) => under(run, "notes"),
  play: (run, values) => under(run, "play") + query(values),
};

/** Change the query of the present place without a new entry in the history. */
export function note(values) {
  const [path, old = ""] = location.hash.split("?", 2);
  const all = { ...Object.fromEntries(new URLSearchParams(old)), ...values };
  history.replaceState(null, "", (path || "#/") + query(all));
}
