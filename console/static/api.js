// @ts-check
// Requests to the server. The page talks to the Kubernetes API, and to the registry,
// with the rights of the session; there is no other backend.

const prefix = "/console/api";

/** Failure is an answer of the server that is not a success. */
export class Failure extends Error {
  /** @param {number} code @param {string} message @param {any} [status] */
  constructor(code, message, status) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

/** What to do when the session has ended. The shell sets it. */
export const session = { ended: () => {} };

/**
 * @typedef {{body?: any, type?: string, accept?: string, signal?: AbortSignal}} Options
 */

/** Send one request. The answer is not read yet. Throws a Failure.
 * @param {string} method @param {string} path @param {Options} [o] @returns {Promise<Response>} */
export async function send(method, path, o = {}) {
  /** @type {Record<string, string>} */
  const headers = { "X-Exeunt-Console": "1", Accept: o.accept || "application/json" };
  if (o.body !== undefined) headers["Content-Type"] = o.type || "application/json";
  const body = o.body === undefined ? undefined : typeof o.body === "string" ? o.body : JSON.stringify(o.body);
  let answer;
  try {
    answer = await fetch(prefix + managed(method, path), { method, headers, body, signal: o.signal, credentials: "same-origin", redirect: "error" });
  } catch (err) {
    if (o.signal && o.signal.aborted) throw err;
    throw new Failure(0, "The server does not answer. The page tries again.");
  }
  if (answer.ok) return answer;
  if (answer.status === 401) session.ended();
  throw await failure(answer);
}

/** Name the page as the field manager of what it writes. @param {string} method @param {string} path */
function managed(method, path) {
  if (!path.startsWith("/api") || method === "GET" || method === "DELETE") return path;
  return path + (path.includes("?") ? "&" : "?") + "fieldManager=exeunt-console";
}

/** @param {Response} answer */
async function failure(answer) {
  const text = await answer.text();
  try {
    const status = JSON.parse(text);
    if (status.message) return new Failure(answer.status, status.message, status);
    if (status.errors && status.errors[0]) return new Failure(answer.status, status.errors[0].message, status);
  } catch { /* not JSON: the text itself */ }
  return new Failure(answer.status, text.slice(0, 500) || answer.statusText);
}

/** @param {string} path @param {Options} [o] @returns {Promise<any>} */
export async function get(path, o) { return (await send("GET", path, o)).json(); }

/** @param {string} path @param {any} body @param {Options} [o] @returns {Promise<any>} */
export async function post(path, body, o) { return (await send("POST", path, { ...o, body })).json(); }

/** Ask a query or command of lifecycle.exeunt.dev: the answer is in its status.
 * @param {string} resource @param {string} kind @param {any} spec @param {AbortSignal} [signal] */
export async function ask(resource, kind, spec, signal) {
  const answer = await post("/apis/lifecycle.exeunt.dev/v1/" + resource,
    { apiVersion: "lifecycle.exeunt.dev/v1", kind, spec }, { signal });
  return answer.status;
}

/** The events of a watch, as they arrive.
 * @param {string} path @param {Options} o @returns {AsyncGenerator<{type: string, object: any}>} */
export async function* watch(path, o) {
  const answer = await send("GET", path, o);
  if (!answer.body) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop() || "";
      for (const line of lines) if (line) yield JSON.parse(line);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** @param {number} ms @param {AbortSignal} [signal] */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => { clearTimeout(timer); resolve(undefined); }, { once: true });
  });
}

/** Build a query string; empty values are left out. @param {Record<string, any>} values */
export function query(values) {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(values)) if (v !== undefined && v !== null && v !== "") q.set(k, String(v));
  const text = q.toString();
  return text ? "?" + text : "";
}

/**
 * A kind as the server describes it.
 * @typedef {{group: string, version: string, kind: string, resource: string, namespaced: boolean, verbs: string[], short: string[], singular: string}} Kind
 */

/** @type {{at: number, kinds: Promise<Kind[]>} | null} */
let discovered = null;

/** All kinds that the server serves, remembered for ten seconds: definitions come and go. */
export function kinds() {
  if (!discovered || Date.now() - discovered.at > 10000) {
    const asked = discover();
    asked.catch(() => { discovered = null; });
    discovered = { at: Date.now(), kinds: asked };
  }
  return discovered.kinds;
}

async function discover() {
  const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
  const lists = await Promise.all([get("/api", { accept }), get("/apis", { accept })]);
  /** @type {Kind[]} */
  const out = [];
  for (const list of lists) for (const g of list.items || []) {
    const seen = new Set();
    for (const v of g.versions || []) for (const r of v.resources || []) {
      if (seen.has(r.resource)) continue; // an older version of the same kind
      seen.add(r.resource);
      out.push({
        group: g.metadata.name || "", version: v.version, kind: r.responseKind.kind, resource: r.resource,
        namespaced: r.scope === "Namespaced", verbs: r.verbs || [], short: r.shortNames || [], singular: r.singularResource || "",
      });
    }
  }
  return out;
}

/** The kind of an apiVersion and kind. @param {string} apiVersion @param {string} kind */
export async function kindOf(apiVersion, kind) {
  const group = apiVersion && apiVersion.includes("/") ? apiVersion.split("/")[0] : "";
  return (await kinds()).find((k) => k.kind === kind && k.group === group);
}

/** The path of a kind, in a namespace or in all. @param {Pick<Kind, "group"|"version"|"resource"|"namespaced">} k @param {string} [namespace] @param {string} [name] */
export function pathOf(k, namespace, name) {
  const root = k.group ? `/apis/${k.group}/${k.version}` : `/api/${k.version}`;
  const place = k.namespaced && namespace ? `/namespaces/${encodeURIComponent(namespace)}` : "";
  return root + place + "/" + k.resource + (name ? "/" + encodeURIComponent(name) : "");
}

/** Where the cascades are, of one namespace or of all. @param {string} [namespace] */
export function cascadesPath(namespace) {
  return "/apis/lifecycle.exeunt.dev/v1" + (namespace ? "/namespaces/" + encodeURIComponent(namespace) : "") + "/cascades";
}

/** apiVersion as objects write it. @param {Pick<Kind, "group"|"version">} k */
export function apiVersion(k) { return k.group ? k.group + "/" + k.version : k.version; }
