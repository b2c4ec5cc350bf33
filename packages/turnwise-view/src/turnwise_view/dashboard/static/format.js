// Numbers, times and words as text.

const MINUS = "−";

/** A number with at most three significant decimals; "–" where there is none. */
export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (typeof value !== "number") return String(value);
  if (value === 0) return "0";
  const size = Math.abs(value);
  let text;
  if (Number.isInteger(value) && size < 1e15) text = size.toLocaleString("en");
  else if (size >= 1000) text = Math.round(size).toLocaleString("en");
  else if (size < 1e-4) text = size.toExponential(1);
  else text = String(Number(size.toPrecision(digits)));
  return value < 0 ? MINUS + text : text;
}

/** The same with its sign. */
export function signed(value, digits = 3) {
  return typeof value === "number" && value > 0
    ? `+${number(value, digits)}`
    : number(value, digits);
}

export function percent(value) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)}%`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${Math.round(1000 * seconds)} ms`;
  if (seconds < 90) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 600) return `${Number((seconds / 60).toFixed(1))} min`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Number((seconds / 3600).toFixed(1))} h`;
  return `${Number((seconds / 86400).toFixed(1))} d`;
}

export function bytes(count) {
  if (count === null || count === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) {
    count /= 1000;
    unit += 1;
  }
  return `${Number(count.toPrecision(3))} ${units[unit]}`;
}

/** A moment, in the reader's own time zone. */
export function moment(iso) {
  const date = new Date(iso);
  if (!iso || Number.isNaN(date.getTime())) return "–";
  return date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

/** The text with its first letter as a capital. */
export function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** "1 turn", "2 turns". */
export function count(value, noun) {
  return `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** "step-000015" is "Step 15", "evaluation-trained" is "Evaluation: trained". */
export function fileTitle(name) {
  const step = /^step-0*(\d+)$/.exec(name);
  if (step) return `Step ${step[1]}`;
  const evaluation = /^evaluation-(.+)$/.exec(name);
  if (evaluation) return `Evaluation: ${evaluation[1]}`;
  return capital(name);
}

/** "truncated_tool_calls" is "truncated: tool calls". */
export function outcomeTitle(outcome) {
  const [first, ...rest] = String(outcome ?? "unknown").split("_");
  return rest.length ? `${first}: ${rest.join(" ")}` : first;
}

/** A value of any kind on one line. */
export function plain(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return number(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Line breaks, tabs and other invisible characters made visible, as one line. */
export function visible(text) {
  return text
    .replaceAll("\n", "⏎")
    .replaceAll("\t", "⇥")
    .replaceAll("\r", "␍")
    .replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, "·");
}
