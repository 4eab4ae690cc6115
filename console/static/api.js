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

/** The user's name; the registry's address; what to do when the session has ended, and when the server begins or ceases to answer. The shell sets both. */
export const session = { user: "", registry: "", ended: () => {}, answers: (/** @type {boolean} */ _) => {} };

/**
 * @typedef {{body?: any, type?: string, accept?: string, signal?: AbortSignal, read?: boolean}} Options read: it changes nothing, whatever its method is
 */

/** Send one request. The answer is not read yet. Throws a Failure.
 * @param {string} method @param {string} path @param {Options} [o] @returns {Promise<Response>} */
export async function send(method, path, o = {}) {
  /** @type {Record<string, string>} */
  const headers = { "X-Exeunt-Console": "1", Accept: o.accept || "application/json" };
  if (o.body !== undefined) headers["Content-Type"] = o.type || "application/json";
  const body = o.body === undefined ? undefined : typeof o.body === "string" ? o.body : JSON.stringify(o.body);
  await allowed(method, path);
  let answer;
  try {
    answer = await fetch(prefix + managed(method, path), { method, headers, body, signal: o.signal, credentials: "same-origin", redirect: "error" });
  } catch (err) {
    if (o.signal && o.signal.aborted) throw err;
    if (method !== "GET" && !o.read) throw new Failure(0, "The server does not answer. It may have received the request or not: look before you repeat it.");
    session.answers(false);
    throw unreachable();
  }
  session.answers(true);
  if (answer.ok) return answer;
  if (answer.status === 401) session.ended();
  if (answer.status === 403) reviews.clear(); // the rights have changed
  throw await failure(answer);
}

/** The failure of a read, which the page repeats. The shell shows it, once. */
const unreachable = () => new Failure(0, "The server does not answer. The page tries again.", { repeated: true });

/** What the session may do, by namespace ("-": everywhere), remembered for 20 seconds.
 * @type {Map<string, {at: number, rules: Promise<any>}>} */
const reviews = new Map();

/** @param {string} namespace @returns {Promise<any>} */
export function rules(namespace) {
  const known = reviews.get(namespace);
  if (known && Date.now() - known.at < 20000) return known.rules;
  const asked = post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
    { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectRulesReview", spec: { namespace } }, { read: true }).then((r) => r.status);
  reviews.set(namespace, { at: Date.now(), rules: asked });
  asked.catch(() => reviews.delete(namespace));
  return asked;
}

/** Forget the rights: another user signs in. */
export const forgetRights = () => reviews.clear();

/** Whether the session has a right. The server decides in the end; this is what the page offers.
 * @param {string} verb @param {string} group @param {string} resource @param {string} [namespace] @param {string} [name] */
export async function may(verb, group, resource, namespace, name) {
  // A namespace is in itself, but a list of namespaces is in none, whatever it selects.
  const r = await rules(namespace || (group === "" && resource === "namespaces" && verb !== "list" && verb !== "watch" && name) || "-");
  const has = (/** @type {string[] | undefined} */ list, /** @type {string} */ item) => (list || []).some((x) => x === "*" || x === item);
  return r.incomplete || r.resourceRules.some((/** @type {any} */ x) => has(x.verbs, verb) && has(x.apiGroups, group) && has(x.resources, resource) &&
    (!(x.resourceNames || []).length || (!!name && x.resourceNames.includes(name))));
}

/** @param {string} verb @param {string} path */
export async function mayVisit(verb, path) {
  const r = await rules("-");
  return r.incomplete || r.nonResourceRules.some((/** @type {any} */ x) => x.verbs.some((/** @type {string} */ v) => v === "*" || v === verb) &&
    x.nonResourceURLs.some((/** @type {string} */ u) => u === "*" || u === path || (u.endsWith("*") && path.startsWith(u.slice(0, -1)))));
}

const place = /^\/(?:api|apis\/([^/]+))\/v[^/]+(?:\/namespaces\/([^/?]+))?\/([^/?]+)(?:\/([^/?]+))?(?:\?(.*))?$/;

/** Throw a Failure for what the session has no right to, without a request: the browser would log its refusal as an error.
 * @param {string} method @param {string} path */
async function allowed(method, path) {
  const past = /^\/at\/[^/]+(?=\/)/.exec(path); // an earlier state needs the right history as well
  if (past) path = path.slice(past[0].length);
  const [, group = "", ns = "", resource, called = "", options] = place.exec(path) || [];
  if (group === "authorization.k8s.io") return;
  if (path.startsWith("/exeunt/")) {
    const to = path.split("?")[0], verb = method.toLowerCase();
    if (!await mayVisit(verb, to)) throw new Failure(403, `You cannot ${verb} ${to}.`);
  }
  if (!resource) return;
  const q = new URLSearchParams(options);
  const name = decodeURIComponent(called) || (/^metadata\.name=(.*)$/.exec(q.get("fieldSelector") || "") || [])[1];
  const verb = method === "GET" ? (called ? "get" : q.get("watch") ? "watch" : "list") : /** @type {any} */ ({ POST: "create", PUT: "update", PATCH: "patch", DELETE: "delete" })[method];
  const namespace = decodeURIComponent(ns);
  const lacks = !await may(verb, group, resource, namespace, name) ? verb : past && !await may("history", group, resource, namespace, name) ? "history" : "";
  if (lacks) throw new Failure(403, `You cannot ${lacks} resource "${resource}" in API group "${group}" ${namespace ? `in the namespace "${namespace}"` : "at the cluster scope"}.`, { read: method === "GET" });
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

/** A list, page by page, up to 5,000 objects. more says how many the server has beyond them.
 * @param {string} path @param {Options} [o] @returns {Promise<{items: any[], more: number}>} */
export async function list(path, o) {
  /** @type {any[]} */
  const items = [];
  for (let next = ""; ;) {
    const page = await get(path + query({ limit: 500, continue: next }), o);
    items.push(...(page.items || []));
    next = page.metadata.continue;
    if (!next || items.length >= 5000) return { items, more: page.metadata.remainingItemCount || 0 };
  }
}

/** How long a page may show such a list before it asks again. @param {{items: any[]} | undefined} shown */
export const age = (shown) => (shown && shown.items.length > 500 ? 30000 : 3000);

/** @param {string} path @param {any} body @param {Options} [o] @returns {Promise<any>} */
export async function post(path, body, o) { return (await send("POST", path, { ...o, body })).json(); }

/** Ask a query or command of lifecycle.exeunt.dev: the answer is in its status.
 * @param {string} resource @param {string} kind @param {any} spec @param {AbortSignal} [signal] */
export async function ask(resource, kind, spec, signal) {
  const answer = await post("/apis/lifecycle.exeunt.dev/v1/" + resource,
    { apiVersion: "lifecycle.exeunt.dev/v1", kind, spec }, { signal, read: kind !== "FinalizerRemoval" });
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

/** Do something for each item, four at a time. @template T @param {T[]} items @param {(item: T, index: number) => Promise<any>} act */
export async function forEach(items, act) {
  let next = 0;
  const work = async () => { while (next < items.length) { const i = next++; await act(items[i], i); } };
  await Promise.all([work(), work(), work(), work()]);
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

/** Where the page of a deletion is. @param {any} c a Cascade */
export const deletionLink = (c) => `#/deletion/${encodeURIComponent(c.metadata.namespace || "-")}/${encodeURIComponent(c.metadata.name)}`;

/** Where the cascades are, of one namespace or of all. @param {string} [namespace] */
export function cascadesPath(namespace) {
  return "/apis/lifecycle.exeunt.dev/v1" + (namespace ? "/namespaces/" + encodeURIComponent(namespace) : "") + "/cascades";
}

/** The newest cascade that began with an object. @param {string} namespace @param {string} uid @param {AbortSignal} [signal] */
export async function cascadeOf(namespace, uid, signal) {
  const newest = await get(cascadesPath(namespace) + "?limit=100", { signal });
  return newest.items.find((/** @type {any} */ c) => c.spec.root.uid === uid) || cascade(namespace, uid, signal);
}

/** A cascade by its id; null: there is none. @param {string} namespace @param {string} id @param {AbortSignal} [signal] */
export async function cascade(namespace, id, signal) {
  return (await get(cascadesPath(namespace) + query({ fieldSelector: "metadata.name=" + id }), { signal })).items[0] || null;
}

/** apiVersion as objects write it. @param {Pick<Kind, "group"|"version">} k */
export function apiVersion(k) { return k.group ? k.group + "/" + k.version : k.version; }
