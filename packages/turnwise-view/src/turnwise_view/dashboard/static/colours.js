// How numbers become colours: names of CSS classes, so that light, dark and print each have their
// own.

export const STEPS = 7;

/** A class `high1` … `high7` for 0 … `most`; higher is darker. */
export function sequential(value, most) {
  if (value === null || value === undefined || !(most > 0)) return "";
  const level = Math.ceil((STEPS * Math.min(Math.max(value, 0), most)) / most);
  return `high${Math.max(1, level)}`;
}

/** A class `up1` … `up7` above 0 and `down1` … `down7` below it; none at 0. */
export function diverging(value, most) {
  if (!value || !(most > 0)) return "";
  const level = Math.max(1, Math.ceil((STEPS * Math.min(Math.abs(value), most)) / most));
  return `${value > 0 ? "up" : "down"}${level}`;
}

/** A class `kind0` … `kind7`. */
export function categorical(index) {
  return index === null || index === undefined ? "" : `kind${((index % 8) + 8) % 8}`;
}

/** The value that a share of the numbers lies below; outliers do not wash a scale out. */
export function quantile(values, share) {
  const sorted = values.filter((value) => Number.isFinite(value)).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] : 0;
}

/** The class of an episode's outcome. */
export function outcomeClass(outcome, success) {
  if (success || outcome === "success") return "good";
  if (/^(infrastructure|grader|cancelled)/.test(outcome ?? "")) return "ungraded";
  if (/^(truncated|agent)/.test(outcome ?? "")) return "cut";
  return "bad";
}
