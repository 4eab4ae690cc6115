// @ts-check
// Machines: provisioned resources on the rail of their phases, and the nodes of the mesh.

import { html, useAnswer, More, Page, Panel, Problem, Loading, Age, State, duration, useNow } from "../view.js";
import { age, list } from "../api.js";

const up = ["Pending", "Provisioning", "Enrolling", "Ready"];
const down = ["Deregistering", "Deprovisioning", "Deleted"];

export function Machines() {
  const resources = useAnswer((signal) => list("/apis/provisioning.exeunt.dev/v1alpha1/provisionedresources", { signal }), age, []);
  const nodes = useAnswer((signal) => list("/apis/mesh.exeunt.dev/v1alpha1/meshnodes", { signal }), age, []);
  const items = (resources.data && resources.data.items) || [];
  const members = (nodes.data && nodes.data.items) || [];
  const owner = (/** @type {any} */ n) => (items.find((/** @type {any} */ r) => r.metadata.uid === n.spec.provisionedResource) || { metadata: { name: n.spec.provisionedResource || "–" } }).metadata.name;
  return html`<${Page} title="Machines">
    <${Panel} title="Provisioned resources" wide><${Problem} error=${resources.error} />
      ${!resources.data && !resources.error && html`<${Loading} />`}
      ${resources.data && items.length === 0 && html`<p class="empty">There are none. Declare one: <code>kubectl explain provisionedresource</code>.</p>`}
      ${items.map((/** @type {any} */ r) => html`<${Resource} key=${r.metadata.uid} resource=${r} />`)}<${More} of=${resources.data} /><//>
    <${Panel} title="Nodes of the mesh" wide><${Problem} error=${nodes.error} />
      ${nodes.data && members.length === 0 && html`<p class="empty">No node has joined.</p>`}
      ${members.length > 0 && html`<table><thead><tr><th scope="col">Node</th><th scope="col">Project</th><th scope="col">State</th><th scope="col">Last heartbeat noted</th><th scope="col">Drain</th><th scope="col">Belongs to</th></tr></thead>
        <tbody>${members.map((/** @type {any} */ n) => html`<tr key=${n.metadata.uid}><td><a href=${`#/object/mesh.exeunt.dev/meshnodes/${encodeURIComponent(n.metadata.namespace)}/${encodeURIComponent(n.metadata.name)}`}>${n.metadata.name}</a></td><td>${n.metadata.namespace}</td>
          <td><${State} state=${nodeState(n.status.phase)} text=${n.status.phase} /></td><td><${Age} at=${n.status.lastSeen} /></td><td>${n.status.drainDeadline ? html`until <${Age} at=${n.status.drainDeadline} />` : "–"}</td><td>${owner(n)}</td></tr>`)}</tbody></table>`}<${More} of=${nodes.data} /><//>
  <//>`;
}

/** @param {string} phase */
const nodeState = (phase) => /** @type {any} */ ({ Ready: "live", Unreachable: "held", Draining: "leaving", Left: "gone" })[phase] || "live";

/** @param {{resource: any}} props */
function Resource({ resource: r }) {
  const now = useNow();
  const s = r.status || {};
  const phase = s.phase || "Pending";
  const leaving = !!r.metadata.deletionTimestamp || down.includes(phase);
  const rail = [...(phase === "Failed" ? ["Pending", "Provisioning", "Enrolling", "Failed"] : up), ...down];
  const at = rail.indexOf(phase);
  const why = runbook(r, now);
  return html`<article class="resource"><header><h3><a href=${`#/object/provisioning.exeunt.dev/provisionedresources/${encodeURIComponent(r.metadata.namespace)}/${encodeURIComponent(r.metadata.name)}`}>${r.metadata.name}</a> <span class="faint">in ${r.metadata.namespace}, ${r.spec.blueprintRef.name} ${r.spec.blueprintRef.version}</span></h3>
      ${leaving && html`<a href=${"#/why/" + encodeURIComponent(r.metadata.uid)}>Why is it still here?</a>`}</header>
    <ol class="rail" aria-label="Phases">${rail.map((p, i) => html`<li class=${(i < at ? "past" : i === at ? "here" : "") + (p === "Failed" ? " failed" : "")} aria-current=${i === at ? "step" : undefined}><span>${p}</span>
      ${i === at && s.phaseSince && html`<small>${duration(now - new Date(s.phaseSince).getTime())}</small>`}</li>`)}</ol>
    ${s.message && html`<p class="faint">${s.message}</p>`}
    ${why && html`<p class="notice"><${State} state="held" text=${why.title} /> ${why.text}</p>`}
    ${(s.waitingFor || []).length > 0 && html`<ul>${s.waitingFor.map((/** @type {any} */ w) => html`<li>${w.holder} ${w.name}${w.object ? " on " + w.object : ""}${w.message ? ": " + w.message : ""}</li>`)}</ul>`}
  </article>`;
}

/** The four cases of the runbook, as far as the status tells. It is pure. @param {any} r @param {number} now */
export function runbook(r, now) {
  const s = r.status || {};
  const synced = (s.conditions || []).find((/** @type {any} */ c) => c.type === "Synced");
  const failing = synced && synced.status === "False";
  const waits = now - new Date(s.phaseSince || now).getTime() > 60000;
  if (s.phase === "Deregistering" && failing) return { title: "The node cannot be drained.", text: "The substrate is untouched. Mend what the message names; do not delete the composite resource, or the node is lost without a drain." };
  if (s.phase === "Deprovisioning" && failing) return { title: "The substrate cannot be deleted.", text: "The node has left already. Restore the broker's access to the cluster, or mend the webhook that refuses." };
  if (down.includes(s.phase) && waits && (s.waitingFor || []).length > 0) return { title: "Nothing moves and nothing fails.", text: "What it waits for is below. Let it finish; remove a finalizer only if what it guards is gone already." };
  if (s.phase === "Enrolling" && /recreat|new XR|was deleted/.test(s.message || "")) return { title: "Another client deleted the composite resource.", text: "The broker drains the node and builds it again. There is nothing to do." };
  return null;
}
