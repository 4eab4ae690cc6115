// @ts-check
// Many objects of a kind, deleted with one plan: what all of them would take with them, each object counted once.

import { html, useState, useAnswer, useRight, choice, Page, Panel, Problem, Loading, State, Act, Command, count, objectLink } from "../view.js";
import { send, ask, may, pathOf, apiVersion, forEach } from "../api.js";
import { useKind, deletionOf } from "./object.js";
import { policies, large } from "./deletion.js";

/** At most so many at once: a plan asks about each. */
export const mostChosen = 200;
const goes = new Set(["Delete", "Wait", "Block"]);

/** What goes when all of some objects are deleted. An object that an owner keeps goes if that owner goes too, and takes what it owns.
 * @param {any[]} references @param {string} policy @param {AbortSignal} signal */
async function planOf(references, policy, signal) {
  const going = new Map(), kept = new Map(), own = new Map();
  let partial = false;
  const look = async (/** @type {any} */ object) => {
    const s = await ask("deletionpreviews", "DeletionPreview", { object, propagationPolicy: policy, limit: 10000 }, signal);
    own.set(object.uid, s);
    partial ||= s.truncated || s.total > (s.items || []).length + (s.hidden || 0) || s.hidden > 0;
    if (s.refused) return;
    for (const i of s.items || []) (goes.has(i.action) ? going : kept).set(i.uid, i);
  };
  await forEach(references, look);
  for (let more = true; more && policy !== "Orphan";) {
    const next = [...kept.values()].filter((i) => !going.has(i.uid) && (i.owners || []).length > 0 && i.owners.every((/** @type {any} */ o) => going.has(o.uid)));
    more = next.length > 0;
    for (const i of next) going.set(i.uid, i);
    await forEach(next, ({ apiVersion: v, kind, namespace, name, uid }) => look({ apiVersion: v, kind, namespace, name, uid }));
  }
  for (const uid of going.keys()) kept.delete(uid);
  return { going: going.size, stays: kept.size, partial, own };
}

/** @param {{group: string, resource: string}} props */
export function DeleteMany({ group, resource }) {
  const { kind, error, unknown } = useKind(group, resource);
  const [sel] = choice("sel");
  const [policy, setPolicy] = choice("policy", policies);
  const [typed, setTyped] = useState("");
  const [failed, setFailed] = useState(/** @type {Map<string, Error>} */ (new Map()));
  const names = sel.split(",").filter(Boolean).slice(0, mostChosen);
  const right = useRight(async () => !!kind && (await Promise.all([...new Set(names.map((key) => key.slice(0, Math.max(0, key.lastIndexOf("/")))))]
    .map((namespace) => may("delete", kind.group, kind.resource, namespace)))).every(Boolean), [kind && kind.resource, sel]);
  const states = useAnswer(async (signal) => {
    if (!kind) return undefined;
    /** @type {any[]} */
    const out = [];
    await forEach(names, async (key, i) => {
      const cut = key.lastIndexOf("/"), namespace = key.slice(0, Math.max(0, cut)) || undefined, name = key.slice(cut + 1).replace(/%2C/g, ",");
      const r = await ask("deletionreports", "DeletionReport", { object: { apiVersion: apiVersion(kind), kind: kind.kind, namespace, name } }, signal);
      out[i] = { key, namespace, name, state: r.exists ? r.state : "DOES_NOT_EXIST", reference: r.exists ? r.object : null };
    });
    return out;
  }, names.length > 20 ? 10000 : 3000, [kind && kind.resource, sel]);
  const rows = states.data || [], live = rows.filter((r) => r.state === "ACTIVE").map((r) => r.reference);
  const plan = useAnswer((signal) => (live.length ? planOf(live, policy, signal) : Promise.resolve(null)), 0, [live.map((r) => r.uid).join(), policy]);
  if (!kind) return html`<${Page} title="Delete"><${Problem} error=${error} />${unknown ? html`<p class="empty">The server does not serve ${resource}.</p>` : html`<${Loading} />`}<//>`;
  const p = plan.data, must = p && p.going >= large;
  const run = async () => {
    const problems = new Map();
    await forEach(live, async (r) => {
      await send("DELETE", pathOf(kind, r.namespace, r.name), { body: { apiVersion: "v1", kind: "DeleteOptions", propagationPolicy: policy, preconditions: { uid: r.uid } } })
        .catch((err) => { if (err.code !== 404) problems.set(r.uid, err); }); // 404: it went with another of them
    });
    setFailed(problems);
    states.again();
  };
  return html`<${Page} title=${html`Delete ${live.length ? count(live.length, "object") : "objects"} of <span class="kind">${kind.kind}</span>`} sub=${live.length ? "A plan: nothing of it has been deleted." : ""} actions=${html`<a class="button" href=${`#/objects/${kind.group || "core"}/${kind.resource}`}>All of this kind</a>`}>
    <${Problem} error=${states.error || plan.error} />
    ${((!states.data && !states.error) || (live.length > 0 && !p && !plan.error)) && html`<${Loading} label="Working out what goes" />`}
    ${p && live.length > 0 && html`<${Panel} title="Go" wide>
      <p id="sum" role="status"><${State} state="leaving" text=${`${p.partial ? "At least " : ""}${count(p.going, "object")} will go`} />, ${count(p.stays, "dependent")} ${p.stays === 1 ? "stays" : "stay"}. What several of them own is counted once.</p>
      <p><label>Dependents: <select aria-label="How dependents are treated" value=${policy} onChange=${(/** @type {any} */ e) => setPolicy(e.target.value)}>${policies.map((x) => html`<option value=${x} selected=${x === policy}>${x}</option>`)}</select></label></p>
      ${right === false ? html`<p class="notice">Your roles have no right to delete ${kind.resource}.</p>` : html`
        ${must && html`<p><label>Type <strong>${p.going}</strong> to confirm: <input id="confirm-count" inputmode="numeric" autocomplete="off" value=${typed} onInput=${(/** @type {any} */ e) => setTyped(e.target.value.trim())} /></label></p>`}
        <p class="actions"><${Act} id="delete-now" kind="danger" disabled=${must && typed !== String(p.going)} run=${run}>Delete ${count(p.going, "object")}<//></p>`}<//>`}
    <${Panel} title=${count(rows.length, "chosen object")} wide><table id="chosen"><thead><tr><th scope="col">Object</th><th scope="col">State</th><th scope="col" class="number">Goes with it</th><th scope="col">Notes</th></tr></thead>
      <tbody>${rows.map((r) => {
        const s = r.reference && p && p.own.get(r.reference.uid);
        const href = r.reference ? deletionOf(kind, r.reference) : `#/delete/${kind.group || "core"}/${kind.resource}/${encodeURIComponent(r.namespace || "-")}/${encodeURIComponent(r.name)}`;
        return html`<tr key=${r.key}><td><a href=${objectLink(kind, r.namespace, r.name)}>${r.name}${r.namespace && html`<span class="faint"> in ${r.namespace}</span>`}</a></td>
        <td><${State} state=${r.state === "ACTIVE" ? "live" : r.state === "DELETING" ? "leaving" : "gone"} text=${r.state === "ACTIVE" ? "live" : r.state === "DELETING" ? "deleting" : "gone"} /></td>
        <td class="number">${s && r.state === "ACTIVE" && !s.refused ? (s.counts || []).filter((/** @type {any} */ c) => goes.has(c.action)).reduce((/** @type {number} */ n, /** @type {any} */ c) => n + c.count, -1).toLocaleString("en") : ""}</td>
        <td>${r.reference && failed.get(r.reference.uid) ? html`<${State} state="held" text=${/** @type {Error} */ (failed.get(r.reference.uid)).message} />` : r.state !== "ACTIVE" ? html`<a href=${href}>Its deletion</a>`
          : s && s.refused ? html`<${State} state="stays" text=${"refused: " + s.refused} />` : s && s.guard && s.guard.holds ? html`<${State} state="held" text="the guard will hold it" />` : s && s.blockersTotal ? html`<${State} state="held" text=${count(s.blockersTotal, "object") + " will be held"} />` : ""}</td></tr>`; })}</tbody></table>
      <${Command} text=${`kubectl delete ${kind.resource}${kind.group ? "." + kind.group : ""} --cascade=${policy.toLowerCase()}${rows[0] && rows[0].namespace ? " -n " + rows[0].namespace : ""} ${rows.map((r) => r.name).join(" ")}`} /><//>
  <//>`;
}
