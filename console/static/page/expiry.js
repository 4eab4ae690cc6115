// @ts-check
// When an object expires, with a way to keep it; and what a policy of expiry takes, and when.

import { html, useState, useAnswer, useRight, choice, Panel, Problem, Loading, Ref, Age, State, Act, Command, count } from "../view.js";
import { send, ask, may, pathOf } from "../api.js";

const keepUntil = "lifecycle.exeunt.dev/keep-until", keepReason = "lifecycle.exeunt.dev/keep-reason", startExpiry = "lifecycle.exeunt.dev/start-expiry";

/** @param {any} kind @param {any} object @param {any} annotations */
const annotate = (kind, { metadata: m }, annotations) => send("PATCH", pathOf(kind, m.namespace, m.name), { type: "application/merge-patch+json", body: { metadata: { uid: m.uid, annotations } } });

/** @param {{object: any, kind: any, right: boolean | undefined}} props right: the session may patch it */
export function Expiry({ object, kind, right }) {
  const m = object.metadata;
  if (kind.group === "lifecycle.exeunt.dev" && /expirypolicies$/.test(kind.resource)) return html`<${Calendar} policy=${object} kind=${kind} right=${right} />`;
  return html`<${Keep} key=${m.uid} object=${object} kind=${kind} right=${right} />`;
}

/** Nothing, for an object that does not expire. @param {{object: any, kind: any, right: boolean | undefined}} props */
function Keep({ object, kind, right }) {
  const { uid, resourceVersion, annotations = {}, name, namespace } = object.metadata;
  const report = useAnswer((signal) => ask("deletionreports", "DeletionReport", { object: { uid } }, signal), 0, [uid], resourceVersion);
  const [days, setDays] = useState("30");
  const [reason, setReason] = useState("");
  const until = annotations[keepUntil];
  const expires = ((report.data && report.data.reasons) || []).find((/** @type {any} */ r) => r.type === "Expires");
  if (!expires && !until) return null;
  const target = `${kind.singular || kind.kind.toLowerCase()}${kind.group ? "." + kind.group : ""}/${name}${namespace ? " -n " + namespace : ""}`;
  const keep = async () => {
    await annotate(kind, object, { [keepUntil]: days === "" ? "forever" : new Date(Date.now() + Number(days) * 86400000).toISOString().replace(/\.\d+Z/, "Z"), [keepReason]: reason || null });
    setReason("");
  };
  return html`<${Panel} title="Expiry" wide>
    <p id="expiry" role="status">${expires && html`<${State} state="leaving" text=${expires.message} />. `}${until && html`<${State} state="stays" text=${"It is kept" + (until === "forever" ? "" : " until " + new Date(until).toLocaleString())} />${annotations[keepReason] ? `: ${annotations[keepReason]}` : ""}. `}</p>
    ${right && html`<form class="guard" onSubmit=${(/** @type {Event} */ e) => e.preventDefault()}>
      <label>Keep it for <input id="keep-days" type="number" min="1" max="36500" placeholder="ever" value=${days} onInput=${(/** @type {any} */ e) => setDays(e.target.value)} /> days</label>
      <label>Reason <input id="keep-reason" value=${reason} onInput=${(/** @type {any} */ e) => setReason(e.target.value)} /></label>
      <${Act} id="keep" disabled=${!/^([1-9]\d{0,4})?$/.test(days)} run=${keep}>Keep it<//>
      ${until && html`<${Act} id="keep-end" run=${() => annotate(kind, object, { [keepUntil]: null, [keepReason]: null })}>No longer keep it<//>`}</form>
      <${Command} text=${`exeunt keep ${target}${days ? ` --for ${days}d` : ""}${reason ? ` --reason "${reason.replace(/["$`\\]/g, "\\$&")}"` : ""}`} />`}
  <//>`;
}

/** What a policy takes, by days. @param {{policy: any, kind: any, right: boolean | undefined}} props */
function Calendar({ policy, kind, right }) {
  const { name, namespace, generation, resourceVersion, annotations = {} } = policy.metadata;
  const [until, setUntil] = choice("until");
  const span = until || "7d";
  const preview = useAnswer((signal) => ask("expirypreviews", "ExpiryPreview", { policy: name, namespace, until: span, limit: 100 }, signal), 30000, [namespace, name, span], resourceVersion);
  const starts = useRight(() => may("confirm-cascade", kind.group, kind.resource, namespace, name), [namespace, name]);
  const begun = (annotations[startExpiry] || "").split("/")[0] === String(generation);
  const p = preview.data;
  const goes = p && p.total - (p.waiting || 0) - (p.later || 0);
  const most = p && Math.max(1, ...(p.days || []).map((/** @type {any} */ d) => d.objects));
  return html`<${Panel} title="What it takes" wide actions=${html`<label>until <select id="until" value=${span} onChange=${(/** @type {any} */ e) => setUntil(e.target.value === "7d" ? "" : e.target.value)}>
      ${["1d", "7d", "30d", "365d"].map((d) => html`<option value=${d}>${"+" + d}</option>`)}</select></label>`}>
    <${Problem} error=${preview.error} />
    ${!p && !preview.error && html`<${Loading} />`}
    ${p && html`<p id="takes" role="status"><${State} state=${begun ? "leaving" : "live"} text=${`${count(goes, "object")} ${begun ? (goes === 1 ? "goes" : "go") : "would go"} in ${span}`} />${p.waiting ? `, ${p.waiting.toLocaleString("en")} wait because that is more than ${p.most.toLocaleString("en")} in a day` : ""}${p.later ? `, ${p.later.toLocaleString("en")} go later because of the rate` : ""}.
        ${p.failed ? ` ${count(p.failed, "object stays", "objects stay")} because the condition cannot be asked: ${p.problem}` : ""}</p>
      ${!begun && right && starts && html`<p><${Act} id="start-expiry" kind="danger" run=${() => annotate(kind, policy, { [startExpiry]: String(generation) })}>Start this policy<//></p>`}
      ${!begun && html`<${Command} text=${`exeunt expiry start ${kind.singular}/${name}${namespace ? " -n " + namespace : ""}`} />`}
      ${(p.days || []).length > 0 && html`<table class="counts" id="days"><thead><tr><th scope="col">Day (UTC)</th><th scope="col">Objects</th><th scope="col">Of them waiting</th></tr></thead>
        <tbody>${p.days.map((/** @type {any} */ d) => html`<tr key=${d.date}><td>${d.date}</td><td><meter min="0" max=${most} value=${d.objects} aria-label=${`${d.objects} on ${d.date}`}></meter> ${d.objects.toLocaleString("en")}</td><td>${(d.waiting || 0).toLocaleString("en")}</td></tr>`)}</tbody></table>`}
      ${(p.objects || []).length > 0 && html`<table><thead><tr><th scope="col">When</th><th scope="col">Object</th></tr></thead>
        <tbody>${p.objects.map((/** @type {any} */ o) => html`<tr key=${o.object.uid}><td>${o.waits ? html`<${State} state="held" text="waits" />` : html`<${Age} at=${o.at} />`}</td><td><${Ref} object=${o.object} /></td></tr>`)}</tbody></table>
        ${p.total > p.objects.length && html`<p class="faint">${(p.total - p.objects.length).toLocaleString("en")} more are not shown.</p>`}`}`}
  <//>`;
}
