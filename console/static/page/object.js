// @ts-check
// One object: its summary, what owns it and what it owns, its Events, its YAML.

import { html, useState, useEffect, useAnswer, useRight, useActions, leadsTo, choice, choose, useKinds, Page, Panel, Problem, Loading, Ref, Age, State, objectLink, count } from "../view.js";
import { replace } from "../address.js";
import { get, ask, may, watch, pause, pathOf, apiVersion, kinds, query, Failure } from "../api.js";
import { Graph } from "../graph.js";
import { Yaml } from "./edit.js";
import { Guard } from "./guard.js";
import { Expiry } from "./expiry.js";
import { History, offersPast } from "./history.js";

/** The object, kept up to date by a watch of its name.
 * @param {any} kind @param {string} namespace @param {string} name */
export function useObject(kind, namespace, name) {
  const [state, setState] = useState(/** @type {{object?: any, gone?: boolean, error?: Error}} */ ({}));
  useEffect(() => {
    if (!kind) return;
    const stop = new AbortController();
    const { signal } = stop;
    setState({});
    const run = async () => {
      while (!signal.aborted) {
        try {
          if (!kind.verbs.includes("watch")) throw new Failure(403, "");
          // A list, because its version is new: the log may not reach back to that of the object.
          const fieldSelector = "metadata.name=" + name.replace(/[\\,=]/g, "\\$&");
          const list = await get(pathOf(kind, namespace) + query({ fieldSelector }), { signal });
          if (list.items.length === 0) throw new Failure(404, "");
          setState({ object: { apiVersion: apiVersion(kind), kind: kind.kind, ...list.items[0] } });
          for await (const event of watch(pathOf(kind, namespace) + query({ watch: "true", fieldSelector, resourceVersion: list.metadata.resourceVersion, timeoutSeconds: 300 }), { signal })) {
            if (event.type === "ERROR") throw new Failure(event.object.code, event.object.message);
            setState({ object: event.object, gone: event.type === "DELETED" });
          }
        } catch (err) {
          if (signal.aborted) return;
          const code = /** @type {any} */ (err).code;
          if (code === 410) continue; // list again
          if (code === 403) { // what cannot be watched is read now and then
            const read = await get(pathOf(kind, namespace, name), { signal }).then((object) => ({ object }), (error) => ({ error }));
            const refused = /** @type {any} */ (read).error?.code;
            if (signal.aborted) return;
            setState((s) => (refused === 404 ? { object: s.object, gone: true } : { object: s.object, ...read }));
            if (refused === 403 || refused === 404) return;
            await pause(5000, signal);
            continue;
          }
          setState((s) => (code === 404 ? { object: s.object, gone: true } : { ...s, error: /** @type {Error} */ (err) }));
          await pause(2000, signal);
        }
      }
    };
    run();
    return () => stop.abort();
  }, [kind && kind.group + kind.resource, namespace, name]);
  return state;
}

/** @param {string} group @param {string} resource */
export function useKind(group, resource) {
  const all = useKinds();
  const kind = (all.data || []).find((k) => k.resource === resource && k.group === (group === "core" ? "" : group));
  return { kind, error: all.error, unknown: !!all.data && !kind };
}

/** @param {{group: string, resource: string, namespace: string, name: string}} props */
export function ObjectPage({ group, resource, namespace, name }) {
  const { kind, error, unknown } = useKind(group, resource);
  const { object, gone, error: failed } = useObject(kind, namespace, name);
  const stored = !!kind && kind.verbs.includes("watch"); // others, such as Restores, are views: there is no plan for them
  const right = useRight(async () => stored && may("delete", kind.group, kind.resource, namespace, name), [kind && kind.group + kind.resource, namespace, name]);
  const mayPatch = useRight(async () => !!kind && kind.verbs.includes("patch") && may("patch", kind.group, kind.resource, namespace, name), [kind && kind.group + kind.resource, namespace, name]);
  const [history] = choice("history");
  const mayLook = useRight(async () => !!kind && offersPast(kind, "get", namespace, name), [kind && kind.group + kind.resource, namespace, name]);
  const look = mayLook && !history && html`<button type="button" id="history" onClick=${() => choose({ history: "yes" })}>History…</button>`;
  const past = history && kind && html`<${History} kind=${kind} namespace=${namespace} name=${name} object=${gone ? undefined : object} />`;
  useActions(!object || !stored ? [] : [
    ...(look ? [{ label: "Its history…", run: () => choose({ history: "yes" }) }] : []),
    leadsTo(gone || object.metadata.deletionTimestamp ? "Its deletion" : right ? "Delete…" : "What would a delete remove?", deletionOf(kind, object.metadata)),
    ...(object.metadata.deletionTimestamp && !gone ? [leadsTo("Why is it still here?", "#/why/" + encodeURIComponent(object.metadata.uid))] : []),
    ...(mayPatch && !gone ? [{ label: "Edit its YAML…", run: () => choose({ edit: "yes" }) }] : []),
  ]);
  const left = object && resource === "archivedobjects" && object.spec;
  useEffect(() => { if (left) replace(`#/deletion/${encodeURIComponent(object.metadata.namespace || "-")}/${encodeURIComponent(left.cascade)}?one=${left.uid}`); }, [left && left.uid]);
  if (unknown) return html`<${Page} title=${name}><p class="empty">The server does not serve ${resource}.</p><//>`;
  if (!object || !kind) {
    return html`<${Page} title=${name} actions=${gone && look}><${Problem} error=${error || failed} />
      ${gone && kind ? html`<${NotThere} kind=${kind} namespace=${namespace} name=${name} />${past}` : !failed && html`<${Loading} />`}<//>`;
  }
  const m = object.metadata;
  const ref = { apiVersion: apiVersion(kind), kind: kind.kind, namespace: m.namespace, name: m.name, uid: m.uid };
  const href = deletionOf(kind, m);
  const state = gone ? "gone" : m.deletionTimestamp ? ((m.finalizers || []).length ? "held" : "leaving") : "live";
  return html`<${Page} title=${html`<span class="kind">${kind.kind}</span> ${m.name}`} sub=${html`<${State} state=${state} text=${stateText(m, gone)} />${m.namespace && html` in <a href=${`#/object/core/namespaces/-/${encodeURIComponent(m.namespace)}`}>${m.namespace}</a>`}`}
    actions=${stored && html`${look}${gone ? html`<a class="button" href=${href}>Its deletion</a>` : html`
      ${m.deletionTimestamp ? html`<a class="button" href=${"#/why/" + encodeURIComponent(m.uid)}>Why is it still here?</a><a class="button" href=${href}>Its deletion</a>`
        : right ? html`<a class="button danger" href=${href}>Delete…</a>` : html`<a class="button" href=${href}>What would a delete remove?</a>`}`}`}>
    <${Problem} error=${failed} />
    ${past}
    <div class="columns"><${Summary} object=${object} />${stored && html`<${Ownership} object=${object} reference=${ref} gone=${gone} />`}</div>
    ${kind.kind === "Namespace" && !kind.group && !gone && html`<${Guard} object=${object} />`}
    ${stored && !gone && !m.deletionTimestamp && html`<${Expiry} object=${object} kind=${kind} right=${mayPatch} />`}
    <${Events} object=${object} kind=${kind} />
    <${Yaml} object=${object} kind=${kind} right=${mayPatch && !gone} />
  <//>`;
}

/** Where the deletion of an object is: its plan, which leads on when the deletion has begun. @param {any} kind @param {any} m */
export const deletionOf = (kind, m) => `#/deletion/${encodeURIComponent(m.namespace || (kind.kind === "Namespace" ? m.name : "-"))}/${encodeURIComponent(m.uid)}/plan`;

/** @param {any} m @param {boolean} [gone] */
function stateText(m, gone) {
  if (gone) return "gone";
  if (!m.deletionTimestamp) return "live";
  const left = new Date(m.deletionTimestamp).getTime() - Date.now();
  return (m.finalizers || []).length ? "deleting, held by " + count(m.finalizers.length, "finalizer") : left > 0 ? `deleting, ${Math.ceil(left / 1000)} s of grace left` : "deleting";
}

/** @param {{kind: any, namespace: string, name: string}} props */
function NotThere({ kind, namespace, name }) {
  return html`<p class="empty">${kind.kind} ${name}${namespace && namespace !== "-" ? " in " + namespace : ""} does not exist. If it was deleted, <a href=${`#/delete/${kind.group || "core"}/${kind.resource}/${encodeURIComponent(namespace || "-")}/${encodeURIComponent(name)}`}>its deletion</a> may be in the archive.</p>`;
}

/** @param {{object: any}} props */
function Summary({ object }) {
  const m = object.metadata;
  const row = (/** @type {any} */ name, /** @type {any} */ value) => value && html`<tr><th scope="row">${name}</th><td>${value}</td></tr>`;
  const pairs = (/** @type {any} */ o) => o && Object.keys(o).length > 0 && Object.entries(o).map(([k, v]) => html`<code class="pair">${k}=${v}</code> `);
  const conditions = (object.status && object.status.conditions) || [];
  return html`<${Panel} title="Summary"><table class="facts"><tbody>
    ${row("Created", html`<${Age} at=${m.creationTimestamp} />`)}
    ${row("Deleted", m.deletionTimestamp && html`<${Age} at=${m.deletionTimestamp} />${m.deletionGracePeriodSeconds ? `, grace ${m.deletionGracePeriodSeconds} s` : ""}`)}
    ${row("Finalizers", (m.finalizers || []).length > 0 && m.finalizers.map((/** @type {string} */ f) => html`<div><${State} state=${m.deletionTimestamp ? "held" : "stays"} text=${f} /></div>`))}
    ${row("Owners", (m.ownerReferences || []).length > 0 && m.ownerReferences.map((/** @type {any} */ o) => html`<div><${Ref} object=${{ ...o, namespace: m.namespace }} />${o.controller ? " (controller)" : ""}${o.blockOwnerDeletion ? " (blocks its deletion)" : ""}</div>`))}
    ${row("Labels", pairs(m.labels))}
    ${row("Annotations", pairs(Object.fromEntries(Object.entries(m.annotations || {}).filter(([k]) => !k.includes("last-applied-configuration")))))}
    ${conditions.map((/** @type {any} */ c) => row(c.type.split(/(?=[A-Z][a-z])/).map((/** @type {string} */ w) => html`${w}<wbr />`), html`${c.status}${c.message ? ": " + c.message : ""}`))}
    ${row("UID", html`<code>${m.uid}</code>`)}
    ${row("Version", html`<code>${m.resourceVersion}</code>${m.generation ? `, generation ${m.generation}` : ""}`)}
  </tbody></table><//>`;
}

/** The graph around an object: owners upwards, and downwards all that a delete would touch.
 * @param {any} object @param {any} reference @param {AbortSignal} signal */
export async function neighbourhood(object, reference, signal) {
  // What is being deleted may be gone by now: a report of that is not an error.
  if (object.metadata.deletionTimestamp && !(await ask("deletionreports", "DeletionReport", { object: { uid: object.metadata.uid } }, signal)).exists) throw new Failure(404, "It is gone.", { repeated: true });
  const preview = await ask("deletionpreviews", "DeletionPreview", { object: reference, limit: 1000 }, signal);
  const all = await kinds();
  const linkTo = (/** @type {any} */ r) => {
    const group = r.apiVersion && r.apiVersion.includes("/") ? r.apiVersion.split("/")[0] : "";
    const k = all.find((k) => k.kind === r.kind && k.group === group);
    return k && objectLink(k, r.namespace, r.name);
  };
  const nodes = [], edges = [];
  const outside = new Map(); // other owners of what it owns
  for (const o of object.metadata.ownerReferences || []) {
    nodes.push({ id: o.uid, label: o.name, kind: o.kind, state: "live", href: linkTo({ ...o, namespace: object.metadata.namespace }) });
    edges.push({ from: o.uid, to: object.metadata.uid, blocking: o.blockOwnerDeletion });
  }
  const deleting = !!object.metadata.deletionTimestamp, there = new Set((preview.items || []).map((/** @type {any} */ i) => i.uid));
  for (const item of preview.items || []) {
    const focus = item.uid === object.metadata.uid;
    const state = focus && !deleting && !(item.finalizers || []).length ? "live" : item.action === "Block" ? "held" : deleting && item.action !== "Keep" && item.action !== "Orphan" ? "leaving" : item.action === "Keep" ? "stays" : "live";
    nodes.push({ id: item.uid, label: item.name, kind: item.kind, state, note: item.reason, href: focus ? undefined : linkTo(item), focus });
    const owners = focus ? [] : item.owners || [];
    for (const o of owners) {
      outside.set(o.uid, { id: o.uid, label: o.name, kind: o.kind, state: "live", href: linkTo({ ...o, namespace: item.namespace }) });
      edges.push({ from: o.uid, to: item.uid, blocking: o.blocked });
    }
    if (item.owner && !owners.some((/** @type {any} */ o) => o.uid === item.owner || there.has(o.uid))) edges.push({ from: item.owner, to: item.uid, blocking: false });
  }
  for (const n of nodes) outside.delete(n.id);
  return { nodes: [...nodes, ...outside.values()], edges, totals: totalsOf(nodes, object.metadata.uid, preview, deleting), preview };
}

/** Where a preview counts more objects than it names, or than the client may see: the server's count for each kind and action.
 * @param {any[]} nodes @param {string} uid @param {any} preview @param {boolean} deleting */
function totalsOf(nodes, uid, preview, deleting) {
  if (preview.total <= (preview.items || []).length) return undefined;
  const key = (/** @type {any} */ i) => [i.apiVersion, i.kind, i.action].join(" ");
  const items = new Map((preview.items || []).map((/** @type {any} */ i) => [i.uid, i]));
  for (const n of nodes) { const i = items.get(n.id); if (i && n.id !== uid) n.group = key(i); }
  const own = items.get(uid);
  return new Map((preview.counts || []).map((/** @type {any} */ c) => [key(c), { kind: c.kind, note: c.action, count: c.count - (own && key(own) === key(c) ? 1 : 0),
    state: c.action === "Block" ? "held" : c.action === "Keep" || c.action === "Orphan" ? "stays" : deleting ? "leaving" : "live" }]).filter((/** @type {any} */ [, t]) => t.count > 0));
}

/** @param {{object: any, reference: any, gone?: boolean}} props */
export function Ownership({ object, reference, gone }) {
  const graph = useAnswer(async (signal) => (gone ? undefined : neighbourhood(object, reference, signal)), (d) => (gone ? 0 : d && d.preview.total > 1000 ? 15000 : 2000), [object.metadata.uid, object.metadata.resourceVersion, gone]);
  if (gone) return html`<${Panel} title="Ownership"><p class="empty"><${State} state="gone" /> It was removed.</p><//>`;
  const total = graph.data && graph.data.preview.total;
  return html`<${Panel} title="Ownership" wide>
    <${Problem} error=${graph.error} />
    ${!graph.data && !graph.error && html`<${Loading} />`}
    ${graph.data && html`<${Graph} nodes=${graph.data.nodes} edges=${graph.data.edges} totals=${graph.data.totals} label=${`Owners and dependents of ${reference.kind} ${reference.name}`} />
      <p class="faint">${graph.data.preview.refused ? `What belongs to it is what a delete would touch, and the server refuses that: ${graph.data.preview.refused}.` : graph.data.nodes.length === 1 && total === 1 ? "Nothing owns it, and it owns nothing." : html`${graph.data.preview.truncated ? "At least " : ""}${count(total, "object")}${graph.data.preview.hidden ? `, of which you may not see ${graph.data.preview.hidden.toLocaleString("en")}` : ""}. Owners are on the left; a thick line blocks its owner's deletion.`}</p>`}
  <//>`;
}

/** @param {{object: any, kind: any}} props */
function Events({ object, kind }) {
  const namespace = object.metadata.namespace || (kind.kind === "Namespace" ? object.metadata.name : "default");
  const events = useAnswer((signal) => get(`/api/v1/namespaces/${encodeURIComponent(namespace)}/events` + query({ fieldSelector: "involvedObject.uid=" + object.metadata.uid, limit: 100 }), { signal }), 3000, [object.metadata.uid]);
  const items = ((events.data && events.data.items) || []).sort((/** @type {any} */ a, /** @type {any} */ b) => time(b).localeCompare(time(a)));
  return html`<${Panel} title="Events" wide><${Problem} error=${events.error} />
    ${items.length ? html`<table><thead><tr><th scope="col">Last seen</th><th scope="col">Type</th><th scope="col">Reason</th><th scope="col">Message</th></tr></thead>
      <tbody>${items.map((/** @type {any} */ e) => html`<tr key=${e.metadata.uid}><td><${Age} at=${time(e)} /></td><td>${e.type === "Warning" ? html`<${State} state="held" text="Warning" />` : e.type}</td><td>${e.reason}</td><td>${e.message}</td></tr>`)}</tbody></table>`
      : events.data && html`<p class="empty">No Events in the last hour.</p>`}<//>`;
}

/** @param {any} e */
const time = (e) => e.lastTimestamp || e.eventTime || e.metadata.creationTimestamp || "";
