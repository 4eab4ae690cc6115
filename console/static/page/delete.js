// @ts-check
// Delete, with a plan: what goes under each policy, then the progress to the end.

import { html, useState, useAnswer, Page, Panel, Problem, Loading, Ref, State, Act, Command, actionState, count, objectLink } from "../view.js";
import { get, send, ask, pathOf, apiVersion, query, cascadesPath } from "../api.js";
import { useKind, useObject, Ownership } from "./object.js";

const policies = ["Background", "Foreground", "Orphan"];
/** From this many objects on, the name must be typed. */
const large = 10;

/** @param {{group: string, resource: string, namespace: string, name: string}} props */
export function DeletePage({ group, resource, namespace, name }) {
  const { kind, error } = useKind(group, resource);
  const { object, error: failed, gone } = useObject(kind, namespace, name);
  const [asked, setAsked] = useState("");
  if (asked && object) return html`<${Progress} object=${object} kind=${kind} gone=${gone} policy=${asked} />`;
  if (!object) return html`<${Page} title="Delete"><${Problem} error=${error || failed} />${gone ? html`<p class="empty">It does not exist.</p>` : html`<${Loading} />`}<//>`;
  return html`<${Plan} object=${object} kind=${kind} onAsked=${setAsked} />`;
}

/** @param {{object: any, kind: any, onAsked: (policy: string) => void}} props */
function Plan({ object, kind, onAsked }) {
  const m = object.metadata;
  const reference = { apiVersion: apiVersion(kind), kind: kind.kind, namespace: m.namespace, name: m.name, uid: m.uid };
  const [policy, setPolicy] = useState("Background");
  const [typed, setTyped] = useState("");
  const plans = useAnswer(async (signal) => {
    const answers = await Promise.all(policies.map((p) => ask("deletionpreviews", "DeletionPreview", { object: reference, propagationPolicy: p, limit: 500 }, signal)));
    return new Map(policies.map((p, i) => [p, answers[i]]));
  }, 5000, [m.uid]);
  const all = plans.data;
  const plan = all && all.get(policy);
  const goes = plan ? sum(plan, ["Delete", "Wait", "Block"]) : 0;
  const mustType = goes >= large;
  const cascade = policy.toLowerCase();
  const where = m.namespace ? ` -n ${m.namespace}` : "";
  const target = `${kind.resource}${kind.group ? "." + kind.group : ""}/${m.name}`;
  const run = async () => {
    await send("DELETE", pathOf(kind, m.namespace, m.name), { body: { apiVersion: "v1", kind: "DeleteOptions", propagationPolicy: policy, preconditions: { uid: m.uid } } });
    onAsked(policy);
  };
  return html`<${Page} title=${html`Delete <span class="kind">${kind.kind}</span> ${m.name}`} sub="Nothing has been deleted yet.">
    <${Problem} error=${plans.error} />
    ${!plans.data && !plans.error && html`<${Loading} label="Working out what goes" />`}
    ${all && html`<div class="policies" role="radiogroup" aria-label="How dependents are treated">
      ${policies.map((p) => html`<${Policy} key=${p} policy=${p} plan=${all.get(p)} chosen=${p === policy} onChoose=${() => setPolicy(p)} />`)}</div>`}
    ${plan && html`<${Panel} title=${`What happens: ${cascade}`} wide><${PlanTable} plan=${plan} /><//>
      ${plan.guard && html`<p class="notice">${plan.guard.holds
        ? html`<${State} state="held" text="The guard will hold this delete" />: it removes ${count(plan.guard.deletes, "object")}, and ${plan.guard.limit} may go${plan.guard.namespace ? ` in namespace ${plan.guard.namespace}` : ""} without confirmation. You can confirm it afterwards.`
        : `The guard lets it through: ${count(plan.guard.deletes, "object")} of at most ${plan.guard.limit}.`}</p>`}
      <${Panel} title="Go" wide>
        ${mustType && html`<p><label>${count(goes, "object")} will go. Type <strong>${m.name}</strong> to confirm:
          <input id="confirm-name" autocomplete="off" value=${typed} onInput=${(/** @type {any} */ e) => setTyped(e.target.value)} /></label></p>`}
        <p class="actions"><${Act} id="delete-now" kind="danger" disabled=${mustType && typed !== m.name} run=${run}>Delete ${count(goes, "object")}<//>
          <a class="button" href=${objectLink(kind, m.namespace, m.name)}>Keep it</a></p>
        <p class="faint">The same from a terminal:</p>
        <${Command} text=${`exeunt preview ${target}${where} --cascade=${cascade}`} />
        <${Command} text=${`kubectl delete ${target}${where} --cascade=${cascade}`} /><//>`}
  <//>`;
}

/** @param {any} plan @param {string[]} actions */
function sum(plan, actions) { return (plan.counts || []).filter((/** @type {any} */ c) => actions.includes(c.action)).reduce((/** @type {number} */ n, /** @type {any} */ c) => n + c.count, 0); }

/** @param {{policy: string, plan: any, chosen: boolean, onChoose: () => void}} props */
function Policy({ policy, plan, chosen, onChoose }) {
  const text = /** @type {any} */ ({
    Background: "The object goes now; what it owns follows.", Foreground: "What it owns goes first; the object goes last.", Orphan: "Only the object goes; what it owns stays.",
  })[policy];
  const blocked = plan.blockersTotal || 0;
  return html`<label class=${"policy" + (chosen ? " chosen" : "")}><input type="radio" name="policy" value=${policy} checked=${chosen} onChange=${onChoose} />
    <strong>${policy}</strong><span class="faint">${text}</span>
    <span><${State} state="leaving" text=${count(sum(plan, ["Delete", "Wait", "Block"]), "object") + " will go"} /></span>
    <span><${State} state="stays" text=${count(sum(plan, ["Keep", "Orphan"]), "object") + " stay" + (sum(plan, ["Keep", "Orphan"]) === 1 ? "s" : "")} /></span>
    <span>${blocked ? html`<${State} state="held" text=${count(blocked, "object") + " will be held"} />` : html`<span class="faint">nothing holds it up</span>`}</span></label>`;
}

/** @param {{plan: any}} props */
export function PlanTable({ plan }) {
  const items = plan.items || [];
  return html`<table class="counts"><thead><tr><th scope="col">Kind</th><th scope="col">Action</th><th scope="col" class="number">Objects</th></tr></thead>
      <tbody>${(plan.counts || []).map((/** @type {any} */ c) => html`<tr><td>${c.kind}</td><td><${State} state=${actionState(c.action)} text=${c.action} /></td><td class="number">${c.count.toLocaleString("en")}</td></tr>`)}</tbody></table>
    <table class="plan"><thead><tr><th scope="col">Object</th><th scope="col">What happens</th><th scope="col">Because</th></tr></thead>
      <tbody>${items.slice(0, 200).map((/** @type {any} */ i) => html`<tr key=${i.uid} data-action=${i.action} data-name=${i.name}><td><${Ref} object=${i} /></td><td><${State} state=${actionState(i.action)} text=${i.action + (i.uncertain ? "?" : "")} /></td><td>${i.reason}</td></tr>`)}</tbody></table>
    ${plan.total > Math.min(items.length, 200) && html`<p class="faint">The first ${Math.min(items.length, 200)} of ${count(plan.total, "object")}.</p>`}`;
}

/** @param {{object: any, kind: any, gone?: boolean, policy: string}} props */
function Progress({ object, kind, gone, policy }) {
  const m = object.metadata;
  const reference = { uid: m.uid };
  const place = m.namespace || (kind.kind === "Namespace" ? m.name : "");
  const cascade = useAnswer(async (signal) => (await get(cascadesPath(place) + query({ fieldSelector: "metadata.name=" + m.uid }), { signal })).items[0], 1000, [m.uid]);
  const report = useAnswer((signal) => ask("deletionreports", "DeletionReport", { object: reference }, signal), 1500, [m.uid]);
  const status = cascade.data && cascade.data.status;
  const done = gone && status && status.remaining === 0;
  return html`<${Page} title=${html`${done ? "Deleted" : "Deleting"} <span class="kind">${kind.kind}</span> ${m.name}`} sub=${policy.toLowerCase()}
    actions=${html`<a class="button" href="#/archive">Archive</a>`}>
    <${Panel} title="Progress" wide>
      ${status ? html`<p id="progress" role="status"><${State} state=${done ? "gone" : "leaving"} text=${`${count(status.removed, "object")} gone, ${status.remaining.toLocaleString("en")} left`} /></p>
        <progress max=${status.removed + status.remaining} value=${status.removed} aria-label="objects gone"></progress>` : html`<${Loading} />`}
      ${done && html`<p>All of it is gone. It can be brought back for a day: <a href=${"#/archive/" + encodeURIComponent(m.uid)}>look at what left, or restore it</a>.</p>`}
    <//>
    ${!gone && html`<${Ownership} object=${object} reference=${{ apiVersion: apiVersion(kind), kind: kind.kind, namespace: m.namespace, name: m.name, uid: m.uid }} />`}
    ${!done && report.data && html`<${Panel} title="What holds it" wide><p><a href=${"#/why/" + encodeURIComponent(m.uid)}>All reasons, and what to do about them</a></p>
      ${(report.data.reasons || []).map((/** @type {any} */ r) => html`<p><${State} state="held" text=${r.message} /></p>`)}<//>`}
  <//>`;
}
