// What the server is asked. Each call gives plain data or throws an ApiError whose message says
// what to do.

import { query } from "./router.js";

export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

const quoted = encodeURIComponent;

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, {
      ...options,
      headers: { Accept: "application/json", ...options.headers },
    });
  } catch (error) {
    if (error.name === "AbortError") throw error; // the reader has gone elsewhere
    throw new ApiError("The server does not answer: is `turnwise view` still running?", 0);
  }
  const data = await response.json().catch(() => null);
  if (!response.ok || data === null) {
    throw new ApiError(data?.error ?? `The server answered ${response.status}.`, response.status);
  }
  return data;
}

function post(path, data) {
  return request(path, {
    method: "POST",
    body: JSON.stringify(data),
    headers: { "Content-Type": "application/json" },
  });
}

const run = (id) => `/api/runs/${quoted(id)}`;

export const api = {
  runs: (signal) => request("/api/runs", { signal }),
  run: (id, signal) => request(run(id), { signal }),
  curves: (id, signal) => request(`${run(id)}/curves`, { signal }),
  step: (id, file, signal) => request(`${run(id)}/steps/${quoted(file)}`, { signal }),
  episodes: (id, filters, signal) => request(`${run(id)}/episodes${query(filters)}`, { signal }),
  episode: (id, file, row, signal) =>
    request(`${run(id)}/episodes/${quoted(file)}/${quoted(row)}`, { signal }),
  tokens: (id, file, row, from, to, signal) =>
    request(`${run(id)}/episodes/${quoted(file)}/${quoted(row)}/tokens${query({ from, to })}`, {
      signal,
    }),
  group: (id, file, group, signal) =>
    request(`${run(id)}/groups/${quoted(file)}/${quoted(group)}`, { signal }),
  timeline: (id, step, signal) => request(`${run(id)}/timeline${query({ step })}`, { signal }),
  reports: (id, signal) => request(`${run(id)}/reports`, { signal }),
  report: (id, name, signal) => request(`${run(id)}/reports/${quoted(name)}`, { signal }),
  notes: (id, signal) => request(`${run(id)}/notes`, { signal }),
  writeNote: (id, note) => post(`${run(id)}/notes`, note),
  compare: (ids, signal) =>
    request(`/api/compare${query({ runs: ids.map(quoted).join(",") })}`, { signal }),
  environments: (signal) => request("/api/play", { signal }),
  play: (start) => post("/api/play", start),
  act: (session, action) => post(`/api/play/${quoted(session)}`, action),
  onward: (session) => post(`/api/play/${quoted(session)}/onward`, {}),
  back: (session) => post(`/api/play/${quoted(session)}/back`, {}),
  /** The address of a download of chosen episodes: [{file, row}]. */
  exported: (id, format, chosen) =>
    `${run(id)}/export${query({ format, select: chosen.map((one) => `${one.file}:${one.row}`).join(",") })}`,
};

/** Call `changed(ids)` whenever runs grow. Gives a function that ends it. */
export function watch(changed) {
  const source = new EventSource("/api/events");
  source.addEventListener("changed", (event) => changed(JSON.parse(event.data).runs));
  return () => source.close();
}
