// @ts-check
// Archive: cascades of the last day as units, and restoring them by a plan.

import { html, useState, useAnswer, Page, Panel, Problem, Loading, Ref, Age, State, Act, Command, bytes, count } from "../view.js";
import { get, post, ask, pause, query, cascadesPath } from "../api.js";

/** @param {{namespace: string}} props */
export function Archive({ namespace }) {
  const cascades = useAnswer((signal) => get(cascadesPath(namespace) + "?limit=500", { signal }), 3000, [namespace]);
  const [text, setText] = useState("");
  const items = ((cascades.data && cascades.data.items) || []).filter((/** @type {any} */ c) => c.status.removed > 0 && JSON.stringify([c.spec.root, c.spec.requestedBy]).includes(text));
  return html`<${Page} title="Archive" sub="What was deleted, until it expires" actions=${html`<input type="search" aria-label="Filter" placeholder="Filter" value=${text} onInput=${(/** @type {any} */ e) => setText(e.target.value)} />`}>
    <${Problem} error=${cascades.error} />
    ${!cascades.data && !cascades.error && html`<${Loading} />`}
    ${cascades.data && items.length === 0 && html`<p class="empty">Nothing was deleted during the last day.</p>`}
    ${items.length > 0 && html`<table><thead><tr><th scope="col">When</th><th scope="col">What</th><th scope="col">Who asked</th><th scope="col" class="number">Objects</th><th scope="col" class="number">Size</th><th scope="col">State</th></tr></thead>
      <tbody>${items.map((/** @type {any} */ c) => html`<tr key=${c.metadata.name}><td><${Age} at=${c.spec.lastRemovedAt} /></td><td><a href=${"#/archive/" + encodeURIComponent(c.metadata.name)}><span class="kind">${c.spec.root.kind}</span> ${c.spec.root.name}</a>${c.spec.root.namespace && html`<span class="faint"> in ${c.spec.root.namespace}</span>`}</td>
        <td>${c.spec.requestedBy}</td><td class="number">${c.status.removed.toLocaleString("en")}</td><td class="number">${bytes(c.status.bytes)}</td><td>${stateOf(c)}</td></tr>`)}</tbody></table>`}
  <//>`;
}

/** @param {any} c */
function stateOf(c) {
  switch (c.status.state) {
    case "running": return html`<${State} state="leaving" text=${c.status.remaining ? c.status.remaining.toLocaleString("en") + " left to go" : "running"} />`;
    case "held": return html`<${State} state="held" text="waits to be confirmed" />`;
    case "restored": return html`<${State} state="back" text="restored" />`;
    case "partly restored": return html`<${State} state="back" text=${c.status.restored.toLocaleString("en") + " restored"} />`;
    default: return html`<${State} state="gone" />`;
  }
}

/** @param {{id: string}} props */
export function CascadePage({ id }) {
  const list = useAnswer((signal) => get("/apis/lifecycle.exeunt.dev/v1/archivedobjects" + query({ fieldSelector: "spec.cascade=" + id, limit: 500 }), { signal }), 0, [id]);
  const [result, setResult] = useState(/** @type {any} */ (null));
  const items = (list.data && list.data.items) || [];
  const found = useAnswer((signal) => get(cascadesPath("") + query({ fieldSelector: "metadata.name=" + id }), { signal }), 2000, [id]);
  const cascade = found.data && found.data.items[0];
  const plan = useAnswer((signal) => ask("restores", "Restore", { cascade: id, dryRun: true }, signal), 0, [id]);
  const run = async () => {
    let restore = await post("/apis/lifecycle.exeunt.dev/v1/restores", { apiVersion: "lifecycle.exeunt.dev/v1", kind: "Restore", spec: { cascade: id } });
    for (setResult(restore.status); restore.status.phase === "Running" || restore.status.phase === "Waiting"; setResult(restore.status)) {
      await pause(500);
      restore = await get("/apis/lifecycle.exeunt.dev/v1/restores/" + restore.metadata.name);
    }
  };
  const shown = result || plan.data;
  return html`<${Page} title=${cascade ? html`<span class="kind">${cascade.spec.root.kind}</span> ${cascade.spec.root.name}, and what left with it` : "Archive"}
    sub=${cascade && html`<${Age} at=${cascade.spec.startedAt} />, asked for by ${cascade.spec.requestedBy}; ${stateOf(cascade)}`}>
    <${Problem} error=${list.error || found.error} />
    ${!list.data && !list.error && html`<${Loading} />`}
    <${Panel} title=${result ? "Restored" : "Restore"} wide>
      <${Problem} error=${plan.error} />
      ${!shown && !plan.error && html`<${Loading} label="Working out the plan" />`}
      ${shown && html`<p id="restore-result" role="status">${result
        ? html`<${State} state="back" text=${`${count(result.created, "object")} restored`} />, ${result.skipped} skipped, ${result.failed} failed${result.complete ? "" : result.waiting ? `, ${result.waiting} awaited: ${result.message}` : ". Not all came back: see the notes"}`
        : html`${count(shown.created, "object")} would come back, ${shown.skipped} would be skipped${shown.failed ? `, ${shown.failed} would fail` : ""}${shown.waiting ? `, ${shown.waiting} are still being deleted and would come back when they are gone` : ""}${shown.conflicts ? `, ${count(shown.conflicts, "name")} taken` : ""}.`}</p>
        <p class="actions"><${Act} id="restore-now" kind="primary" disabled=${!result && shown.created + (shown.waiting || 0) + (shown.calledOff || 0) === 0} run=${run}>${result ? "Restore again" : `Restore ${count(shown.created + (shown.waiting || 0) + (shown.calledOff || 0), "object")}`}<//></p>
        <${Command} text=${`exeunt restore --cascade ${id}`} />
        <table><thead><tr><th scope="col">Object</th><th scope="col">${result ? "Result" : "Plan"}</th><th scope="col">Notes</th></tr></thead>
          <tbody>${(shown.results || []).slice(0, 500).map((/** @type {any} */ r) => html`<tr><td><${Ref} object=${r} plain=${!result && r.outcome === "created"} /></td>
            <td><${State} state=${r.outcome === "created" ? "back" : r.outcome === "failed" ? "held" : "stays"} text=${r.outcome} /></td><td>${[r.reason, ...(r.warnings || [])].filter(Boolean).join("; ")}</td></tr>`)}</tbody></table>`}
    <//>
    ${list.data && html`<${Panel} title=${count(cascade ? cascade.status.removed : items.length, "archived object") + (cascade && cascade.status.removed > items.length ? `, the first ${items.length.toLocaleString("en")}` : "")} wide><table><thead><tr><th scope="col">Object</th><th scope="col">Removed</th><th scope="col">By</th><th scope="col" class="number">Size</th></tr></thead>
      <tbody>${items.map((/** @type {any} */ i) => html`<tr key=${i.metadata.name}><td><${Ref} object=${i.spec} plain /></td><td><${Age} at=${i.spec.removedAt} /></td><td>${i.spec.actor}</td><td class="number">${bytes(i.spec.size)}</td></tr>`)}</tbody></table><//>`}
  <//>`;
}
