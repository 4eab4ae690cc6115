// @ts-check
// Now: what is leaving, what holds it, and what left during the last day.

import { html, useState, useRef, useEffect, useAnswer, useRight, useActions, Page, Panel, Problem, Loading, Ref, Age, Act, State, Dialog, bytes, count } from "../view.js";
import { age, get, list, post, ask, may, query, cascadesPath, deletionLink, mayVisit } from "../api.js";
import { open, left, holders, useRate } from "./deletion.js";
import { Line, Timeline } from "../chart.js";
import { restores, ended } from "./restore.js";
import { createShop } from "../shop.js";

const day = 24 * 3600 * 1000;

/** @param {{namespace: string}} props */
export function Now({ namespace }) {
  const cascades = useAnswer((signal) => get(cascadesPath(namespace) + "?limit=100", { signal }), 2000, [namespace]);
  const items = (cascades.data && cascades.data.items) || [];
  const more = cascades.data && cascades.data.metadata.continue;
  const archived = useAnswer((signal) => get(cascadesPath(namespace).replace(/cascades$/, "archivedobjects?limit=1"), { signal, accept: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io" }), 5000, [namespace]);
  const running = items.filter(open).sort((/** @type {any} */ a, /** @type {any} */ b) => b.spec.startedAt.localeCompare(a.spec.startedAt));
  return html`<${Page} title="Now" sub=${cascades.data ? `${count(running.length, "cascade")}${running.length === items.length && more ? " and more" : ""} under way${inArchive(archived.data)}` : ""}>
    <${Problem} error=${cascades.error} />
    ${!cascades.data && !cascades.error && html`<${Loading} />`}
    ${!namespace && cascades.error && /** @type {any} */ (cascades.error).code === 403 && html`<p>Choose a namespace above to see its deletions.</p>`}
    ${cascades.data && html`<${Panel} title="Leaving" wide>
      ${running.length ? html`<table><thead><tr><th scope="col">What</th><th scope="col">Who asked</th><th scope="col">Since</th><th scope="col" class="number">Gone</th><th scope="col" class="number">Left</th><th scope="col">Progress</th><th scope="col" class="number">Per second</th><th scope="col">Held by</th></tr></thead>
        <tbody>${running.map((/** @type {any} */ c) => html`<${Running} key=${c.metadata.name} cascade=${c} />`)}</tbody></table>` : html`<p class="empty">Nothing is being deleted.</p>`}
    <//>`}
    ${cascades.data && html`<${Panel} title=${more ? `The last ${items.length} deletions` : "The last day"} wide><${LastDay} cascades=${items} more=${!!more} /><//>`}
    <${Queues} />
    <${Work} />
    <${Hour} />
    <${Draining} />
    ${cascades.data && items.length === 0 && html`<${Welcome} />`}
  <//>`;
}

/** How many objects the archive has, if the server says so: it does not count for clients that may see a part, or very many. @param {any} list */
function inArchive(list) {
  if (!list || (list.metadata.continue && list.metadata.remainingItemCount === undefined)) return "";
  return `; ${count((list.items || []).length + (list.metadata.remainingItemCount || 0), "object")} in the archive`;
}

/** @param {{cascade: any}} props */
function Running({ cascade: c }) {
  const rate = useRate(c);
  const { removed, remaining } = c.status;
  return html`<tr class="cascade"><td><a href=${deletionLink(c)}><span class="kind">${c.spec.root.kind}</span> ${c.spec.root.name}</a>${c.spec.root.namespace && html`<span class="faint"> in ${c.spec.root.namespace}</span>`}</td><td>${c.spec.requestedBy}</td>
    <td><${Age} at=${c.spec.startedAt} /></td><td class="number gone-count">${removed.toLocaleString("en")}</td><td class="number left-count">${left(c)}</td>
    <td><progress max=${removed + remaining} value=${removed} aria-label="objects gone"></progress></td>
    <td class="number">${Math.round(rate).toLocaleString("en")}</td><td><${Holder} cascade=${c} /></td></tr>`;
}

/** What holds a cascade: the first reason of its root that needs someone. @param {{cascade: any}} props */
function Holder({ cascade }) {
  const root = cascade.spec.root;
  const report = useAnswer((signal) => ask("deletionreports", "DeletionReport", { object: root }, signal), 3000, [root.uid]);
  if (!report.data) return html`<span class="faint">…</span>`;
  const [held] = holders(report.data.reasons || []);
  if (!held) return html`<span class="faint">nothing</span>`;
  return html`<a href=${"#/why/" + encodeURIComponent(root.uid)}><${State} state="held" text=${held.reason.message} /></a>`;
}

/** @param {{cascades: any[], more: boolean}} props */
function LastDay({ cascades, more }) {
  const to = Date.now(), from = to - day, slot = day / 120;
  /** @type {Map<number, number>} */
  const slots = new Map();
  for (const c of cascades) {
    const at = new Date(c.spec.lastRemovedAt || c.spec.startedAt).getTime();
    if (at < from || !c.status.removed) continue;
    const key = from + Math.floor((at - from) / slot) * slot;
    slots.set(key, (slots.get(key) || 0) + c.status.removed);
  }
  const bars = [...slots].map(([at, n]) => ({ at, n }));
  const latest = cascades.filter((c) => c.status.removed > 0).sort((a, b) => b.spec.lastRemovedAt.localeCompare(a.spec.lastRemovedAt)).slice(0, 8);
  return html`<${Timeline} bars=${bars} from=${from} to=${to} label=${more ? `The last ${cascades.length} deletions` : "Deletions of the last day"} />
    ${latest.length > 0 && html`<table><thead><tr><th scope="col">When</th><th scope="col">What</th><th scope="col">Who asked</th><th scope="col" class="number">Objects</th><th scope="col"><span class="hidden">Actions</span></th></tr></thead>
      <tbody>${latest.map((c) => html`<tr key=${c.metadata.name}><td><${Age} at=${c.spec.lastRemovedAt} /></td><td><${Ref} object=${c.spec.root} plain=${c.status.remaining === 0} /></td><td>${c.spec.requestedBy}</td>
        <td class="number">${c.status.removed.toLocaleString("en")}</td><td class="look"><a href=${deletionLink(c)}>Look or restore</a></td></tr>`)}</tbody></table>`}`;
}

/** Long work: backups, verifications and imports of the registry, new keys, files that move, restores and reverts. Each is shown to those who may see it. */
function Work() {
  const status = useAnswer(async (signal) => (await mayVisit("get", "/exeunt/status") ? get("/exeunt/status", { signal }) : {}), 10000, []).data || {};
  const asked = useAnswer(async (signal) => (await may("list", "lifecycle.exeunt.dev", "restores") ? (await get(restores, { signal })).items.filter((/** @type {any} */ r) => !ended(r)) : []), 5000, []).data || [];
  const b = status.backup, keys = status.keys, move = status.registry && status.registry.move;
  const rows = [
    ...(b ? [["Backup", html`to ${b.target.split("?")[0]}, since <${Age} at=${b.at} suffix="" />`, `${b.step}${b.total ? `: ${(b.done || 0).toLocaleString("en")} of ${count(b.total, "blob")}` : ""}${b.bytes ? ", " + bytes(b.bytes) : ""}`, b.done, b.total]] : []),
    ...(status.works || []).map((/** @type {any} */ w) => [w.what, html`${w.by ? `asked for by ${w.by}, ` : ""}since <${Age} at=${w.since} suffix="" />`, w.far, w.done, w.total]),
    ...(keys && (keys.left > 0 || keys.lacking > 0) ? [["New key for Secrets", keys.next || keys.sealing, keys.lacking ? `${count(keys.lacking, "replica")} without it` : `${count(keys.left, "body", "bodies")} left under other keys`]] : []),
    ...(move && !move.ended ? [["Files of the registry move", "", count(move.left, "file") + " left"]] : []),
    ...asked.map((/** @type {any} */ { spec: s, status: st }) => [s.to ? "Revert" : "Restore", html`${s.object ? html`<${Ref} object=${s.object} />` : "cascade " + (s.cascade || st.cascade || s.uid)}, asked for by ${st.requestedBy}`, `${st.created + (st.changed || 0) + (st.deleted || 0)} done${st.waiting ? `, ${st.waiting} awaited` : ""}${st.message ? ": " + st.message : ""}`]),
  ];
  if (!rows.length) return null;
  return html`<${Panel} title="Long work" wide><table id="work"><thead><tr><th scope="col">What</th><th scope="col">Of what</th><th scope="col">How far</th></tr></thead>
    <tbody>${rows.map(([what, of, far, done, total]) => html`<tr><td>${what}</td><td>${of}</td><td>${total > 0 && html`<progress max=${total} value=${done || 0} aria-label=${what}></progress> `}${far}</td></tr>`)}</tbody></table><//>`;
}

/** The last hour, a sample a minute, for those who may read the server's status. */
function Hour() {
  const { samples = [] } = useAnswer((signal) => get("/exeunt/status/hour", { signal }), 20000, []).data || {};
  if (!samples.length) return null;
  const of = (/** @type {(s: any) => number} */ f) => samples.map(f), disk = samples[samples.length - 1].diskBytes;
  return html`<${Panel} title=${samples.length < 60 ? `The last ${samples.length === 1 ? "minute" : samples.length + " minutes"}, since this server started` : "The last hour"} wide><div class="charts" id="hour">
    <${Line} label="Objects removed in a minute" values=${of((s) => s.removed)} /><${Line} label="Reviews queued" values=${of((s) => s.queued)} />
    <${Line} label="Database" values=${of((s) => s.databaseBytes)} format=${bytes} />${disk > 0 && html`<${Line} label=${`Free disk, of ${bytes(disk)}`} values=${of((s) => s.diskFreeBytes)} format=${bytes} />`}</div><//>`;
}

/** The four queues: what is due, what fails. Each keeps its last two minutes. */
function Queues() {
  const objects = useAnswer((signal) => get("/exeunt/gc", { signal }), 1000, []);
  const registry = useAnswer((signal) => get("/exeunt/registry/gc", { signal }), 2000, []);
  const right = useRight(() => mayVisit("post", "/exeunt/gc/pause"), []);
  const [pausing, setPausing] = useState(false);
  const gc = objects.data;
  const r = registry.data;
  const queues = [["Objects", gc], ["Manifests", r && r.manifests], ["Blobs", r && r.blobs], ["Files to remove", r && r.unlinks]].filter(([, q]) => q);
  useActions(!gc || !right ? [] : [gc.paused ? { label: "Resume the collector", run: () => post("/exeunt/gc/resume", undefined).then(objects.again) } : { label: "Pause the collector…", run: () => setPausing(true) }]);
  if (!gc && !r) return objects.error && /** @type {any} */ (objects.error).code !== 403 ? html`<${Problem} error=${objects.error} />` : null;
  const actions = gc && right && (gc.paused
    ? html`<${Act} run=${async () => { await post("/exeunt/gc/resume", undefined); objects.again(); }}>Resume<//>`
    : html`<button type="button" onClick=${() => setPausing(true)}>Pause…</button>`);
  return html`<${Panel} title="Reviews" actions=${actions} wide>
    ${gc && gc.paused && html`<p class="notice" role="status"><${State} state="held" text="The collector is paused" />${gc.reason ? ": " + gc.reason : ""}. Deletes are accepted; nothing follows them until you resume.</p>`}
    ${r && html`<p id="given-back">${bytes(r.givenBackBytes)} of images given back today (UTC), ${bytes(r.unlinkBytes)} to be removed.</p>`}
    ${gc && gc.asking > 0 && html`<p class="notice" role="status"><${State} state="held" text=${count(gc.asking, "delete")} /> of the collector wait for webhooks or policies, ${gc.refused} of them refused or without an answer.</p>`}
    <div class="charts">${queues.map(([name, q]) => html`<${Queue} key=${name} name=${name} queue=${q} />`)}</div>
    ${gc && gc.failures && html`<table><thead><tr><th scope="col">Failing review</th><th scope="col" class="number">Tries</th><th scope="col">Next</th><th scope="col">Error</th></tr></thead>
      <tbody>${gc.failures.map((/** @type {any} */ f) => html`<tr><td>${f.kind} ${f.name}</td><td class="number">${f.attempts}</td><td><${Age} at=${f.next} /></td><td>${f.error}</td></tr>`)}</tbody></table>`}
    ${pausing && html`<${Pause} onClose=${() => { setPausing(false); objects.again(); }} />`}
  <//>`;
}

/** @param {{name: string, queue: any}} props */
function Queue({ name, queue }) {
  const values = useRef(/** @type {number[]} */ ([]));
  useEffect(() => { values.current = [...values.current.slice(-119), queue.depth]; }, [queue]);
  return html`<div class="queue"><${Line} label=${name} values=${[...values.current, queue.depth]} />
    <p class="faint">${queue.overdue} due, ${queue.claimed} under review, ${queue.failing ? html`<${State} state="held" text=${queue.failing + " failing"} />` : "0 failing"}${queue.oldest && html`, oldest <${Age} at=${queue.oldest} suffix="" />`}</p></div>`;
}

/** @param {{onClose: () => void}} props */
function Pause({ onClose }) {
  const [reason, setReason] = useState("");
  return html`<${Dialog} title="Pause the collector" onClose=${onClose}>
    <p>Every replica stops collecting. Deletes are still accepted, and their cascades wait.</p>
    <label>Reason <input value=${reason} onInput=${(/** @type {any} */ e) => setReason(e.target.value)} maxlength="1000" /></label>
    <p class="actions"><${Act} kind="danger" disabled=${!reason.trim()} run=${async () => { await post("/exeunt/gc/pause" + query({ reason }), undefined); onClose(); }}>Pause<//>
      <button type="button" onClick=${onClose}>Cancel</button></p><//>`;
}

function Draining() {
  const nodes = useAnswer((signal) => list("/apis/mesh.exeunt.dev/v1alpha1/meshnodes", { signal }), age, []);
  const draining = ((nodes.data && nodes.data.items) || []).filter((/** @type {any} */ n) => n.status && n.status.phase === "Draining");
  if (!draining.length) return null;
  return html`<${Panel} title="Nodes draining"><table><tbody>${draining.map((/** @type {any} */ n) => html`<tr><td><a href="#/machines">${n.metadata.name}</a></td>
    <td>deadline <${Age} at=${n.status.drainDeadline} /></td></tr>`)}</tbody></table><//>`;
}

/** A fresh server: what to do first. */
function Welcome() {
  return html`<${Panel} title="Nothing has been deleted yet" wide>
    <p>These three commands make something to look at:</p>
    <pre tabindex="0" role="region" aria-label="Commands">kubectl create configmap parent
kubectl create deployment web --image=nginx --replicas=2
kubectl create namespace shop</pre>
    <p>Or let the page make an example: a shop with a deployment, its pods, a configuration and a lock that holds it.</p>
    <${Act} id="create-shop" kind="primary" run=${async () => { await createShop(); location.hash = "#/object/apps/deployments/shop/web"; }}>Create the example shop<//>
  <//>`;
}
