// @ts-check
// Why: the tree of reasons that keep an object, with their remedies.

import { html, useState, useRef, useAnswer, useRight, Page, Panel, Problem, Loading, Ref, Age, State, Act, Dialog, Command, count } from "../view.js";
import { ask, send, post, may, mayVisit, kindOf, pathOf, cascadeOf, session } from "../api.js";
import { restore, mayRestore } from "./restore.js";

/** @param {{uid: string}} props */
export function Why({ uid }) {
  const report = useAnswer((signal) => ask("deletionreports", "DeletionReport", { object: { uid } }, signal), 1500, [uid]);
  const s = report.data;
  const known = useRef(/** @type {any} */ ({})); // what is gone has no name in the report
  if (s && s.object.name) known.current = s.object;
  if (!s) return html`<${Page} title="Why"><${Problem} error=${report.error} />${!report.error && html`<${Loading} />`}<//>`;
  const o = s.object.name ? s.object : known.current;
  const named = html`<span class="kind">${o.kind || "The object"}</span> ${o.name || ""}`;
  return html`<${Page} title=${s.exists ? html`Why is ${named} still here?` : html`${named} is gone`}
    sub=${html`<${State} state=${s.state === "DELETING" ? "leaving" : s.exists ? "live" : "gone"} text=${s.exists ? s.state.toLowerCase() : "gone"} />${s.remaining ? ` · ${s.remaining.toLocaleString("en")} to go first` : ""}`}
    actions=${s.exists ? html`<${Ref} object=${o} />` : html`<a class="button" href=${`#/deletion/${encodeURIComponent(o.namespace || "-")}/${encodeURIComponent(uid)}`}>Look or restore</a>`}>
    <${Problem} error=${report.error} />
    ${(s.reasons || []).length === 0 && html`<p class="empty">${s.exists ? "Nothing holds it." : "It is gone."}</p>`}
    <${Panel} title="Reasons" wide><${Tree} reasons=${s.reasons || []} about=${o} again=${report.again} />
      ${s.truncated && html`<p class="faint">There are more reasons than are shown.</p>`}<//>
  <//>`;
}

/** @param {{reasons: any[], about: any, again: () => void}} props */
function Tree({ reasons, about, again }) {
  if (!reasons.length) return null;
  return html`<ul class="tree">${reasons.map((r) => html`<li><div class="reason"><strong>${r.type}</strong> ${r.object ? html`<${Ref} object=${r.object} />: ` : ""}${r.message}${r.since && html` <span class="faint">since <${Age} at=${r.since} suffix="" /></span>`}</div>
    <${Remedy} reason=${r} about=${r.object || about} again=${again} />
    <${Tree} reasons=${r.children || []} about=${r.object || about} again=${again} /></li>`)}</ul>`;
}

/** What to do about a reason, for those who may. @param {{reason: any, about: any, again: () => void}} props */
export function Remedy({ reason, about, again }) {
  const [open, setOpen] = useState(false);
  const close = () => { setOpen(false); again(); };
  const finalizer = (reason.type === "Finalizer" || reason.type === "SpecFinalizer") && (/finalizer (\S+)/.exec(reason.message) || [])[1];
  const verb = finalizer ? "force-finalize" : "confirm-cascade";
  const right = useRight(async () => {
    if (reason.type === "CollectorPaused") return mayVisit("post", "/exeunt/gc/resume");
    const kind = (finalizer || reason.type === "Guard") && await kindOf(about.apiVersion, about.kind);
    return !!kind && may(verb, kind.group, kind.resource, about.namespace, about.name);
  }, [reason.type, about.uid, about.name]);
  const callsOff = useRight(async () => reason.type === "Guard" && mayRestore(about), [reason.type, about.uid, about.name]);
  // Where another user must confirm, the one who asked cannot.
  const asked = useRight(async () => reason.type === "Guard" && reason.message.includes("another user than") &&
    cascadeOf(about.namespace || (about.kind === "Namespace" ? about.name : ""), about.uid).then((c) => !!c && c.spec.requestedBy === session.user, () => false), [reason.message, about.uid]);
  const n = reason.type === "Guard" && (/confirm-cascade=(\d+)/.exec(reason.resolve) || [])[1];
  const done = (/** @type {Promise<any>} */ p) => p.then(again);
  return html`${right && finalizer && html`<button type="button" class="small danger" onClick=${() => setOpen(true)}>Remove this finalizer…</button>`}
    ${right && n && asked === false && html`<${Act} kind="small danger" run=${() => done(confirm(n, about))}>${`Confirm: ${count(Number(n), "object")} may go`}<//>`}
    ${right && asked && html`<span class="faint">You asked for this delete, so another user must confirm it.</span>`}
    ${callsOff && html` <${Act} kind="small" run=${() => done(restore({ object: { apiVersion: about.apiVersion, kind: about.kind, namespace: about.namespace, name: about.name } }))}>Call it off<//>`}
    ${right && reason.type === "CollectorPaused" && html`<${Act} kind="small" run=${() => done(post("/exeunt/gc/resume", undefined))}>Resume the collector<//>`}
    ${right === false && (finalizer || reason.type === "Guard") && html`<span class="faint">Your roles have no right to ${finalizer ? "remove it by force" : "confirm it"}.</span>`}
    ${reason.resolve && html`<p class="faint resolve">${reason.resolve}</p>`}
    ${open && html`<${RemoveFinalizer} object=${about} finalizer=${finalizer} onClose=${close} />`}`;
}

/** Confirm with the number that the reason names: if more would go by now, the guard holds again.
 * @param {string} n @param {any} about */
async function confirm(n, about) {
  const kind = await kindOf(about.apiVersion, about.kind);
  if (!kind) throw new Error("The server does not serve this kind.");
  await send("PATCH", pathOf(kind, about.namespace, about.name), { type: "application/merge-patch+json",
    body: { metadata: { uid: about.uid, annotations: { "lifecycle.exeunt.dev/confirm-cascade": n } } } });
}

/** @param {{object: any, finalizer: string, onClose: () => void}} props */
function RemoveFinalizer({ object, finalizer, onClose }) {
  const [reason, setReason] = useState("");
  const run = async () => { await ask("finalizerremovals", "FinalizerRemoval", { object, finalizer, reason }); onClose(); };
  const where = object.namespace ? ` -n ${object.namespace}` : "";
  return html`<${Dialog} title="Remove a finalizer by force" onClose=${onClose}>
    <p>The controller that set <code>${finalizer}</code> on ${object.kind} ${object.name} has not removed it. What it should clean up stays behind if you remove it here.</p>
    <label>Reason, kept in an Event <input id="reason" value=${reason} onInput=${(/** @type {any} */ e) => setReason(e.target.value)} /></label>
    <${Command} text=${`exeunt finalizer remove ${object.kind.toLowerCase()}/${object.name}${where} ${finalizer} --reason "${reason.replace(/["$`\\]/g, "\\$&")}"`} />
    <p class="actions"><${Act} id="remove-finalizer" kind="danger" disabled=${!reason.trim()} run=${run}>Remove<//> <button type="button" onClick=${onClose}>Cancel</button></p><//>`;
}
