// @ts-check
// Bringing a deletion back: what restoring would change, all of it or one object; and who restored what.

import { html, useState, useAnswer, useRight, choice, choose, Panel, Problem, Loading, Ref, Age, State, Act, Command, Dialog, count } from "../view.js";
import { get, post, ask, may, pause, kindOf, pathOf, query } from "../api.js";
import { readable } from "../yaml.js";
import { Diff } from "../diff.js";

export const restores = "/apis/lifecycle.exeunt.dev/v1/restores";
export const ended = (/** @type {any} */ r) => r.status.phase === "Complete" || r.status.phase === "Incomplete";

/** Ask for a restore, and wait until it has ended or the server has taken it on. @param {any} spec */
export async function restore(spec) {
  const made = await post(restores, { apiVersion: "lifecycle.exeunt.dev/v1", kind: "Restore", metadata: { generateName: "console-" }, spec });
  const st = made.status;
  if (st.phase === "Incomplete" && !(st.created + (st.calledOff || 0) + (st.changed || 0) + (st.deleted || 0)) && st.message) throw new Error(st.message);
  return made;
}

/** Whether the user may bring an object back: that needs create on it. @param {any} o a reference */
export async function mayRestore(o) {
  const kind = await kindOf(o.apiVersion, o.kind); // that of a removed definition has none
  return await may("create", "lifecycle.exeunt.dev", "restores") && (!kind || may("create", kind.group, kind.resource, o.namespace, o.name));
}

/** The plan of a restore. @param {{cascade: any, again: () => void}} props */
export function Restoring({ cascade: c, again }) {
  const id = c.metadata.name;
  const right = useRight(() => mayRestore(c.spec.root), [c.spec.root.uid]);
  // While a restore of it goes on, a plan would be another one at each look, and as much work as the restore.
  const plan = useAnswer(async (signal) => {
    if (!right) return undefined;
    const going = await may("list", "lifecycle.exeunt.dev", "restores") && (await get(restores, { signal })).items.some((/** @type {any} */ r) => !ended(r) && (r.spec.cascade === id || r.status.cascade === id));
    return going ? { going } : ask("restores", "Restore", { cascade: id, dryRun: true }, signal);
  }, (d) => (d && d.going ? 2000 : 0), [right, id, c.status.restored, c.status.removed, c.status.remaining]);
  const [one, setOne] = choice("one");
  const going = plan.data && plan.data.going, s = going ? undefined : plan.data;
  const comes = s ? s.created + (s.waiting || 0) + (s.calledOff || 0) : 0;
  const chosen = one && s && (s.results || []).find((/** @type {any} */ r) => r.uid === one);
  return html`<${Panel} title="What restoring would change" wide>
    <${Problem} error=${plan.error} />
    ${right === false && html`<p class="notice">Your roles have no right to restore ${c.spec.root.kind} ${c.spec.root.name}: that needs the right to create it.</p>`}
    ${going && html`<p class="empty">A restore goes on: it is above.</p>`}
    ${!s && !going && !plan.error && right !== false && html`<${Loading} label="Working out the plan" />`}
    ${s && html`<p id="restore-plan" role="status">${count(s.created, "object")} would come back, ${s.skipped} would be skipped${s.failed ? `, ${s.failed} would fail` : ""}${s.calledOff ? `, ${count(s.calledOff, "deletion")} would be called off` : ""}${s.waiting ? `, ${s.waiting} are still being deleted and would come back when they are gone` : ""}${s.conflicts ? `, ${count(s.conflicts, "name")} taken` : ""}.</p>
      <p class="actions"><${Act} id="restore-now" kind="primary" disabled=${comes === 0} run=${async () => { await restore({ cascade: id }); again(); }}>Restore ${count(comes, "object")}<//></p>
      <${Command} text=${`exeunt restore --cascade ${id}`} />
      <${Results} results=${s.results} plan choose=${setOne} />`}
    ${chosen && html`<${One} result=${chosen} right=${right} onClose=${() => setOne("")} again=${again} />`}
  <//>`;
}

/** @param {{results?: any[], plan?: boolean, choose?: (uid: string) => void}} props */
export function Results({ results = [], plan, choose }) {
  return html`<table><thead><tr><th scope="col">Object</th><th scope="col">${plan ? "Plan" : "Result"}</th><th scope="col">Notes</th>${choose && html`<th scope="col"><span class="hidden">Alone</span></th>`}</tr></thead>
      <tbody>${results.slice(0, 500).map((r) => html`<tr key=${r.uid} data-name=${r.name}><td><${Ref} object=${r} plain=${plan && r.outcome === "created"} /></td>
        <td><${State} state=${["created", "called off", "changed"].includes(r.outcome) ? "back" : r.outcome === "failed" ? "held" : r.outcome === "deleted" ? "leaving" : "stays"} text=${r.outcome} /></td>
        <td>${[r.reason, ...(r.warnings || [])].filter(Boolean).join("; ")}<${Changes} changes=${r.changes} /></td>
        ${choose && html`<td>${r.uid && html`<button type="button" class="small" aria-label=${`What restoring ${r.kind} ${r.name} alone would change`} onClick=${() => choose(r.uid)}>Alone…</button>`}</td>`}</tr>`)}</tbody></table>
    ${results.length > 500 && html`<p class="faint">The first 500 of ${count(results.length, "result")}.</p>`}`;
}

/** Without its version and generation, which say nothing to people. @param {any} o */
export const plain = (o) => readable({ ...o, metadata: { ...o.metadata, resourceVersion: undefined, generation: undefined } });

/** Fields that come back with another value. @param {{changes?: any[]}} props */
export function Changes({ changes }) {
  return (changes || []).map((c) => html`<pre class="diff">${c.field}${c.was && html`<del>- ${c.was}</del>`}${c.is && html`<ins>+ ${c.is}</ins>`}</pre>`);
}

/** One object: what restoring it alone would change. @param {{result: any, right?: boolean, onClose: () => void, again: () => void}} props */
function One({ result: r, right, onClose, again }) {
  const found = useAnswer(async (signal) => {
    const plan = await ask("restores", "Restore", { uid: r.uid, dryRun: true }, signal);
    const place = r.namespace || (r.kind === "Namespace" ? r.name : "");
    const kept = (await get("/apis/lifecycle.exeunt.dev/v1" + (place ? "/namespaces/" + encodeURIComponent(place) : "") + "/archivedobjects" + query({ fieldSelector: "metadata.name=" + r.uid }), { signal })).items[0];
    const kind = await kindOf(r.apiVersion, r.kind);
    // What has the name now, if anything: a list, because the absence of an object is not an error.
    const now = kind && (await get(pathOf(kind, r.namespace) + query({ fieldSelector: "metadata.name=" + r.name }), { signal })).items[0];
    return { plan, now: now && { apiVersion: r.apiVersion, kind: r.kind, ...now }, kept: kept && kept.object };
  }, 0, [r.uid]);
  const { plan, now, kept } = found.data || {};
  const own = plan && (plan.results || [])[0];
  return html`<${Dialog} title=${`Restore ${r.kind} ${r.name} alone`} wide onClose=${onClose}>
    <${Problem} error=${found.error} />
    ${!found.data && !found.error && html`<${Loading} />`}
    ${own && html`<p id="restore-one" role="status"><${State} state=${own.outcome === "created" ? "back" : "stays"} text=${own.outcome === "created" ? "It would come back." : `It would not come back: ${own.outcome}.`} /> ${[own.reason, ...(own.warnings || [])].filter(Boolean).join("; ")}</p>
      ${(own.changes || []).length > 0 && html`<p>Other than it was when its deletion was asked for:</p><${Changes} changes=${own.changes} />`}
      ${kept ? html`<p class="faint">${now ? `What has the name now (-), and what the archive has (+). Nothing is overwritten.` : "What would be there again:"}</p>
        <${Diff} before=${now ? plain(now) : ""} after=${plain(kept)} label="What restoring would change" />` : html`<p class="faint">Its content was not kept, or you may not see it.</p>`}
      ${plan.leftBehind > 0 && html`<p class="faint">${count(plan.leftBehind, "object")} that left with it would stay in the archive.</p>`}
      <${Command} text=${`exeunt restore --uid ${r.uid}`} />`}
    <p class="actions">${right !== false && html`<${Act} id="restore-alone" kind="primary" disabled=${!own || own.outcome !== "created"} run=${async () => { await restore({ uid: r.uid }); onClose(); again(); }}>Restore it alone<//>`}<button type="button" onClick=${onClose}>Close</button></p><//>`;
}

/** Who restored or reverted what, and how far that is. @param {{of: (r: any) => boolean, deps: any[], title: string}} props of: which are shown */
export function Restores({ of, deps, title }) {
  const [open, setOpen] = choice("restore");
  const list = useAnswer(async (signal) => (await may("list", "lifecycle.exeunt.dev", "restores") ? (await get(restores, { signal })).items : []).filter(of), (items) => (items && !items.every(ended) ? 1000 : 5000), deps);
  const items = list.data || [];
  if (!items.length) return null;
  return html`<${Panel} title=${title} wide><table id="restores"><thead><tr><th scope="col">When</th><th scope="col">Who asked</th><th scope="col">What</th><th scope="col">Result</th><th scope="col"><span class="hidden">Details</span></th></tr></thead>
    <tbody>${items.map((/** @type {any} */ r) => { const s = r.status; return html`<tr key=${r.metadata.name}><td><${Age} at=${r.metadata.creationTimestamp} /></td><td>${s.requestedBy}</td><td>${r.spec.to ? html`to ${r.spec.to}` : r.spec.cascade || r.spec.withCascade ? "all of it" : "one object alone"}</td>
      <td><${State} state=${s.phase === "Incomplete" ? "held" : ended(r) ? "back" : "leaving"} text=${r.spec.to ? `${s.created} created, ${s.changed || 0} changed, ${s.deleted || 0} deleted` : `${count(s.created, "object")} restored`} />${s.calledOff ? `, ${count(s.calledOff, "deletion")} called off` : ""}${r.spec.to ? "" : `, ${s.skipped} skipped`}, ${s.failed} failed${s.waiting ? `, ${s.waiting} awaited` : ""}${s.message ? ": " + s.message : ""}${!ended(r) && !s.message ? ", and it goes on" : s.phase === "Incomplete" ? ". Not all came back" : ""}</td>
      <td><button type="button" class="small" aria-expanded=${open === r.metadata.name} onClick=${() => setOpen(open === r.metadata.name ? "" : r.metadata.name)}>${open === r.metadata.name ? "Hide" : "Each object"}</button>${s.before && ended(r) && html` <button type="button" class="small" onClick=${() => choose({ history: "yes", at: s.before, revert: "plan" })}>Undo…</button>`}</td></tr>`; })}</tbody></table>
    ${open && html`<${Each} key=${open} name=${open} />`}<//>`;
}

/** @param {{name: string}} props */
function Each({ name }) {
  const found = useAnswer((signal) => get(restores + "/" + encodeURIComponent(name), { signal }), (r) => (r && ended(r) ? 0 : 1000), [name]);
  return html`<${Problem} error=${found.error} />${found.data && html`<${Results} results=${found.data.status.results} />`}`;
}
