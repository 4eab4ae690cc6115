// @ts-check
// A deletion, from its plan to the archive, at one address: what goes under each policy; how
// far it is and what holds it; what left, and bringing it back.

import { html, useState, useEffect, useRef, useAnswer, useRight, useActions, leadsTo, choice, Page, Panel, Problem, Loading, Ref, Age, State, Act, Command, actionState, bytes, count, duration, objectLink } from "../view.js";
import { Failure, get, send, ask, may, kindOf, pathOf, query, cascade, cascadeOf, deletionLink } from "../api.js";
import { replace as go } from "../address.js";
import { useKind, useObject, Ownership } from "./object.js";
import { Remedy } from "./why.js";
import { Restoring, Restores, mayRestore } from "./restore.js";

export const policies = ["Background", "Foreground", "Orphan"];
/** From this many objects on, the name must be typed. */
export const large = 10;
/** The server counts up to here what is not being deleted yet. */
const mostFollowing = 100000;

/** The address of a delete by name: it leads to the plan, or to the deletion if the object is gone.
 * @param {{group: string, resource: string, namespace: string, name: string}} props */
export function DeletePage({ group, resource, namespace, name }) {
  const { kind, error, unknown } = useKind(group, resource);
  const { object, error: failed, gone } = useObject(kind, namespace, name);
  const [absent, setAbsent] = useState(false);
  const [policy] = choice("policy");
  useEffect(() => {
    if (!kind || (!object && !gone)) return;
    const find = async () => {
      const place = object ? object.metadata.namespace || (kind.kind === "Namespace" ? name : "") : kind.kind === "Namespace" ? name : namespace;
      if (object) { go(`#/deletion/${encodeURIComponent(place || "-")}/${object.metadata.uid}/plan` + query({ policy })); return; }
      const list = await get("/apis/lifecycle.exeunt.dev/v1" + (place ? "/namespaces/" + encodeURIComponent(place) : "") + "/archivedobjects" + query({ fieldSelector: "spec.name=" + name, limit: 100 }));
      const last = list.items.find((/** @type {any} */ a) => a.spec.kind === kind.kind);
      if (last) go(`#/deletion/${encodeURIComponent(place || "-")}/${encodeURIComponent(last.spec.cascade)}`); else setAbsent(true);
    };
    find().catch(() => setAbsent(true));
  }, [kind, object && object.metadata.uid, gone]);
  return html`<${Page} title="Delete"><${Problem} error=${error || failed} />
    ${unknown ? html`<p class="empty">The server does not serve ${resource}.</p>` : absent ? html`<p class="empty">It does not exist.</p>` : !error && !failed && html`<${Loading} />`}<//>`;
}

/** @param {{namespace: string, chosen: string, id: string, plan: boolean}} props */
export function DeletionPage({ namespace, chosen, id, plan }) {
  // Who may not list the cascades of all namespaces may know those of the chosen one.
  const place = useAnswer(async () => namespace || (await may("list", "lifecycle.exeunt.dev", "cascades") ? "" : chosen), 0, [namespace, chosen]).data;
  const found = useAnswer(async (signal) => {
    if (place === undefined) return undefined;
    const c = plan ? null : await cascade(place, id, signal);
    if (c) return { cascade: c };
    const { object, exists, state } = await ask("deletionreports", "DeletionReport", { object: { uid: id.split(".")[0] } }, signal);
    const begun = plan && (!exists || state === "DELETING") ? await cascadeOf(place, id, signal) : null;
    if (begun) go(deletionLink(begun));
    return { object, exists, kind: exists && object.name ? await kindOf(object.apiVersion, object.kind) : undefined };
  }, (d) => (d && d.cascade ? (!open(d.cascade) ? 5000 : d.cascade.status.remaining > 10000 ? 3000 : 1000) : 1500), [place, id, plan]);
  const { cascade: c, object, kind, exists } = /** @type {any} */ (found.data || {});
  if (c) return html`<${Deletion} cascade=${c} error=${found.error} again=${found.again} />`;
  if (kind) return html`<${Plan} reference=${object} kind=${kind} />`;
  return html`<${Page} title="Deletion"><${Problem} error=${found.error} />
    ${found.data && !exists ? html`<p class="empty">There is no such deletion: it has left the archive, or you may not see it.</p>` : !found.error && html`<${Loading} />`}<//>`;
}

/** @param {{reference: any, kind: any}} props */
function Plan({ reference, kind }) {
  const { namespace, name, uid } = reference;
  const [policy, setPolicy] = choice("policy", policies);
  const [typed, setTyped] = useState("");
  const right = useRight(() => may("delete", kind.group, kind.resource, namespace, name), [uid]);
  const plans = useAnswer(async (signal) => {
    if (!(await ask("deletionreports", "DeletionReport", { object: reference }, signal)).exists) throw new Failure(404, "It is gone.", { repeated: true });
    const answers = await Promise.all(policies.map((p) => ask("deletionpreviews", "DeletionPreview", { object: reference, propagationPolicy: p, limit: 500 }, signal)));
    return new Map(policies.map((p, i) => [p, answers[i]]));
  }, (d) => (d && [...d.values()].some((p) => p.total > 1000) ? 30000 : 5000), [uid]);
  const all = plans.data;
  const plan = all && all.get(policy);
  const goes = plan ? sum(plan, ["Delete", "Wait", "Block"]) : 0;
  const mustType = goes >= large;
  const way = policy.toLowerCase();
  const where = namespace ? ` -n ${namespace}` : "";
  const target = `${kind.resource}${kind.group ? "." + kind.group : ""}/${name}`;
  const run = async () => {
    await send("DELETE", pathOf(kind, namespace, name), { body: { apiVersion: "v1", kind: "DeleteOptions", propagationPolicy: policy, preconditions: { uid } } });
    const place = namespace || (kind.kind === "Namespace" ? name : "");
    const begun = await cascadeOf(place, uid);
    go(begun ? deletionLink(begun) : `#/deletion/${encodeURIComponent(place || "-")}/${uid}`);
  };
  return html`<${Page} title=${html`Delete <span class="kind">${kind.kind}</span> ${name}`} sub=${`${namespace ? `In ${namespace}. ` : ""}A plan: nothing of it has been deleted.`}>
    <${Problem} error=${plans.error} />
    ${!plans.data && !plans.error && html`<${Loading} label="Working out what goes" />`}
    ${all && html`<div class="policies" role="radiogroup" aria-label="How dependents are treated">
      ${policies.map((p) => html`<${Policy} key=${p} policy=${p} plan=${all.get(p)} chosen=${p === policy} onChoose=${() => setPolicy(p)} />`)}</div>`}
    ${plan && html`${plan.guard && html`<p class="notice">${plan.guard.holds
        ? html`<${State} state="held" text="The guard will hold this delete" />: it removes ${count(plan.guard.deletes, "object")}, and ${plan.guard.limit} may go${plan.guard.namespace ? ` in namespace ${plan.guard.namespace}` : ""} without confirmation. You can confirm it afterwards.`
        : `The guard lets it through: ${count(plan.guard.deletes, "object")} of at most ${plan.guard.limit}.`}</p>`}
      <${Panel} title="Go" wide>
        ${plan.refused ? html`<p class="notice" id="refused"><${State} state="stays" text="The server refuses this delete" />: ${plan.refused}</p>`
          : right === false ? html`<p class="notice" id="refused"><${State} state="stays" text="You may read this plan, and may not delete it" />: your roles have no right to delete ${kind.resource}${namespace ? " in " + namespace : ""}.</p>`
          : html`${mustType && html`<p><label>${count(goes, "object")} will go. Type <strong>${name}</strong> to confirm:
              <input id="confirm-name" autocomplete="off" value=${typed} onInput=${(/** @type {any} */ e) => setTyped(e.target.value)} /></label></p>`}
            <p class="actions"><${Act} id="delete-now" kind="danger" disabled=${right === undefined || (mustType && typed !== name)} run=${run}>Delete ${count(goes, "object")}<//>
              <a class="button" href=${objectLink(kind, namespace, name)}>Keep it</a></p>`}
        <p class="faint">The same from a terminal:</p>
        <${Command} text=${`exeunt preview ${target}${where} --cascade=${way}`} />
        <${Command} text=${`kubectl delete ${target}${where} --cascade=${way}`} /><//>
      <${Panel} title=${`What happens: ${way}`} wide><${PlanTable} plan=${plan} /><//>`}
  <//>`;
}

/** @param {any} plan @param {string[]} actions */
function sum(plan, actions) { return plan.refused ? 0 : (plan.counts || []).filter((/** @type {any} */ c) => actions.includes(c.action)).reduce((/** @type {number} */ n, /** @type {any} */ c) => n + c.count, 0); }

/** @param {{policy: string, plan: any, chosen: boolean, onChoose: () => void}} props */
function Policy({ policy, plan, chosen, onChoose }) {
  const text = /** @type {any} */ ({
    Background: "The object goes now; what it owns follows.", Foreground: "What it owns goes first; the object goes last.", Orphan: "Only the object goes; what it owns stays.",
  })[policy];
  const blocked = plan.blockersTotal || 0;
  return html`<label class=${"policy" + (chosen ? " chosen" : "")}><input type="radio" name="policy" value=${policy} checked=${chosen} onChange=${onChoose} />
    <strong>${policy}</strong><span class="faint">${text}</span>
    ${plan.refused ? html`<span class="faint">nothing goes</span>` : html`<span><${State} state="leaving" text=${count(sum(plan, ["Delete", "Wait", "Block"]), "object") + " will go"} /></span>
    <span><${State} state="stays" text=${count(sum(plan, ["Keep", "Orphan"]), "object") + " stay" + (sum(plan, ["Keep", "Orphan"]) === 1 ? "s" : "")} /></span>
    <span>${blocked ? html`<${State} state="held" text=${count(blocked, "object") + " will be held"} />` : html`<span class="faint">nothing holds it up</span>`}</span>`}</label>`;
}

/** @param {{plan: any}} props */
function PlanTable({ plan }) {
  const items = plan.items || [];
  return html`<table class="counts"><thead><tr><th scope="col">Kind</th><th scope="col">Action</th><th scope="col" class="number">Objects</th></tr></thead>
      <tbody>${(plan.counts || []).map((/** @type {any} */ c) => html`<tr><td>${c.kind}</td><td><${State} state=${actionState(c.action)} text=${c.action} /></td><td class="number">${c.count.toLocaleString("en")}</td></tr>`)}</tbody></table>
    <table class="plan"><thead><tr><th scope="col">Object</th><th scope="col">What happens</th><th scope="col">Because</th></tr></thead>
      <tbody>${items.slice(0, 200).map((/** @type {any} */ i) => html`<tr key=${i.uid} data-action=${i.action} data-name=${i.name}><td><${Ref} object=${i} /></td><td><${State} state=${actionState(i.action)} text=${i.action + (i.uncertain ? "?" : "")} /></td><td>${i.reason}</td></tr>`)}</tbody></table>
    ${plan.hidden > 0 && html`<p class="faint">${count(plan.hidden, "object")} that you may not see ${plan.hidden === 1 ? "is" : "are"} counted and not named.</p>`}
    ${plan.total > Math.min(items.length, 200) + (plan.hidden || 0) && html`<p class="faint">The first ${Math.min(items.length, 200)} of ${count(plan.total, "object")}.</p>`}`;
}

/** @param {any} c */
export function stateOf(c) {
  switch (c.status.state) {
    case "running": return html`<${State} state="leaving" text=${c.status.remaining ? left(c) + " left to go" : "running"} />`;
    case "held": return html`<${State} state="held" text="waits to be confirmed" />`;
    case "restored": return html`<${State} state="back" text="restored" />`;
    case "partly restored": return html`<${State} state="back" text=${c.status.restored.toLocaleString("en") + " restored"} />`;
    default: return html`<${State} state="gone" />`;
  }
}

/** Whether a cascade has not ended. @param {any} c */
export const open = (c) => c.status.state === "running" || c.status.state === "held";

/** @param {any} c */
export const left = (c) => (c.status.remaining > mostFollowing ? "more than " : "") + c.status.remaining.toLocaleString("en");

/** The reasons in the tree that people can act on, each with the object that it is about. @param {any[]} reasons @param {any} [about] @returns {{reason: any, about: any}[]} */
export function holders(reasons, about) {
  return reasons.flatMap((r) => (["Finalizer", "SpecFinalizer", "Guard", "Admission", "CollectorPaused", "CollectorOff", "GracePeriod"].includes(r.type) || (r.type === "Review" && /fail/.test(r.message))
    ? [{ reason: r, about: r.object || about }] : holders(r.children || [], r.object || about)));
}

/** How many objects of a cascade went in a second, lately. @param {any} c */
export function useRate(c) {
  const seen = useRef(/** @type {{at: number, n: number}[]} */ ([]));
  const last = seen.current[seen.current.length - 1];
  if (!last || Date.now() - last.at > 900) seen.current = [...seen.current.slice(-9), { at: Date.now(), n: c.status.removed }];
  const [from, to] = [seen.current[0], seen.current[seen.current.length - 1]];
  return to.at > from.at ? ((to.n - from.n) * 1000) / (to.at - from.at) : 0;
}

/** A deletion that has begun. @param {{cascade: any, error?: Error, again: () => void}} props */
function Deletion({ cascade: c, error, again }) {
  const root = c.spec.root, s = c.status, going = open(c);
  const rate = useRate(c);
  const [back, setBack] = choice("back");
  const report = useAnswer((signal) => (going ? ask("deletionreports", "DeletionReport", { object: { uid: root.uid } }, signal) : Promise.resolve(null)), 1500, [c.metadata.name, going]);
  const mayCall = useRight(() => mayRestore(root), [root.uid]);
  const held = report.data ? holders(report.data.reasons || []) : [];
  const total = s.removed + s.remaining;
  useActions([leadsTo("Why: all reasons", "#/why/" + encodeURIComponent(root.uid)), ...(going && mayCall && !back ? [{ label: "Call this deletion back…", run: () => setBack("yes") }] : [])]);
  const title = going ? "Deleting" : s.state === "restored" ? "Restored" : "Deleted";
  return html`<${Page} title=${html`${title} <span class="kind">${root.kind}</span> ${root.name}${total > 1 && html`, and what ${going ? "leaves" : "left"} with it`}`}
    sub=${html`${root.namespace && `in ${root.namespace}, `}asked for <${Age} at=${c.spec.startedAt} /> by ${c.spec.requestedBy}${c.spec.confirmedBy && html`, <span id="confirmed">confirmed by ${c.spec.confirmedBy}</span>`}; ${stateOf(c)}`}
    actions=${html`${going && mayCall && !back && html`<button type="button" onClick=${() => setBack("yes")}>Call it back…</button>`}<a class="button" href="#/archive">Archive</a>`}>
    <${Problem} error=${error} />
    <${Panel} title="Progress" wide>
      <p id="progress" role="status"><${State} state=${going ? "leaving" : "gone"} text=${`${count(s.removed, "object")} gone, ${left(c)} left`} />${going && ` of ${s.remaining > mostFollowing ? "more than " : ""}${total.toLocaleString("en")}`}${rate >= 1 && s.remaining > 0 && `, ${Math.round(rate).toLocaleString("en")} a second, about ${duration((s.remaining / rate) * 1000)} to go`}</p>
      ${going && html`<progress max=${total} value=${s.removed} aria-label="objects gone"></progress>`}
      ${!going && html`<p>${s.restored ? `All of it was removed, and ${s.state === "restored" ? "all" : count(s.restored, "object")} restored since.` : "All of it is gone."} ${s.expiresAt && s.state !== "restored" && html`It can be brought back until it leaves the archive, <${Age} at=${s.expiresAt} />.`}${s.purged ? ` ${count(s.purged, "object")} ${s.purged === 1 ? "was" : "were"} purged from the archive.` : ""}</p>`}
    <//>
    ${going && report.data && html`<${Panel} title="What holds it" wide>
      ${held.length ? html`<ul class="tree">${held.slice(0, 10).map(({ reason, about }) => html`<li key=${reason.type + (about ? about.uid || about.name : "") + reason.message}>${about && html`<${Ref} object=${about} />: `}<${State} state="held" text=${reason.message} />${" "}
        <${Remedy} reason=${reason} about=${about || root} again=${() => { report.again(); again(); }} /></li>`)}</ul>` : html`<p class="empty">Nothing: the collector works on it.</p>`}
      <p><a href=${"#/why/" + encodeURIComponent(root.uid)}>All reasons${held.length > 10 ? `, ${report.data.truncated ? "at least " : ""}${held.length - 10} more that hold it among them` : ""}</a></p><//>`}
    <${Restores} title="Called back" deps=${[c.metadata.name, s.restored]} of=${(/** @type {any} */ r) => r.spec.cascade === c.metadata.name || r.status.cascade === c.metadata.name || r.spec.uid === root.uid} />
    ${going && report.data && report.data.exists && held.some(({ reason }) => reason.type !== "Guard") && html`<${LiveGraph} root=${root} />`}
    ${(going ? back : s.state !== "restored") && html`<${Restoring} key=${c.metadata.name} cascade=${c} again=${again} />`}
    <${Archived} cascade=${c} />
  <//>`;
}

/** What is left around the object, while something holds it. @param {{root: any}} props */
function LiveGraph({ root }) {
  const kind = useAnswer(() => kindOf(root.apiVersion, root.kind), 0, [root.uid]).data;
  const { object } = useObject(kind, root.namespace, root.name);
  return object && object.metadata.uid === root.uid ? html`<${Ownership} object=${object} reference=${root} />` : null;
}

/** What left: the last of it while it goes on, then all, a page at a time. @param {{cascade: any}} props */
function Archived({ cascade: c }) {
  const id = c.metadata.name, going = open(c);
  const read = (/** @type {string} */ from, /** @type {AbortSignal | undefined} */ signal) => get("/apis/lifecycle.exeunt.dev/v1" + (c.metadata.namespace ? "/namespaces/" + encodeURIComponent(c.metadata.namespace) : "") + "/archivedobjects" + query({ fieldSelector: "spec.cascade=" + id, limit: 100, continue: from }), { signal });
  const { data, error } = useAnswer((signal) => read("", signal), going ? 3000 : 0, [id, going]);
  const [older, setOlder] = useState(/** @type {{items: any[], more?: string, of?: any}} */ ({ items: [] }));
  const rest = older.of === data ? older : { items: [], more: undefined };
  const items = data ? [...data.items, ...rest.items] : [], more = !going && data && (rest.more ?? data.metadata.continue);
  const load = async () => { const list = await read(more, undefined); setOlder({ items: [...rest.items, ...list.items], more: list.metadata.continue || "", of: data }); };
  if (c.status.removed === 0) return null;
  return html`<${Panel} title=${count(c.status.removed, "archived object") + (data && c.status.removed > items.length ? `, the last ${items.length.toLocaleString("en")}` : "")} wide><${Problem} error=${error} />
    <table><thead><tr><th scope="col">Object</th><th scope="col">Removed</th><th scope="col">By</th><th scope="col" class="number">Size</th></tr></thead>
      <tbody>${items.map((/** @type {any} */ i) => html`<tr key=${i.metadata.name}><td><${Ref} object=${i.spec} plain /></td><td><${Age} at=${i.spec.removedAt} /></td><td>${i.spec.actor}</td><td class="number">${bytes(i.spec.size)}</td></tr>`)}</tbody></table>
    ${more && html`<p><${Act} run=${load}>Show more<//></p>`}<//>`;
}
