// @ts-check
// Earlier states: a slider for the time, the versions of an object, what changed in a namespace or a list, and bringing a state back.

import { html, useState, useEffect, useAnswer, useRight, choice, choose, Panel, Problem, Loading, State, Age, Act, Command, objectLink, count } from "../view.js";
import { get, ask, may, kinds, pathOf, apiVersion, query, forEach } from "../api.js";
import { Diff } from "../diff.js";
import { large } from "./deletion.js";
import { Restores, Results, Changes, restore, plain } from "./restore.js";

const week = 7 * 24 * 3600 * 1000, steps = 200;
/** A second can be asked for when it is over by the server's clock: what is nearer to now than this is not. */
const over = 3000;
const heads = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
/** How many changed objects are named. */
const mostNamed = 500;

/** Whether the server keeps earlier states of a kind: its settings say of which. @param {any} k */
export const hasPast = (k) => k.verbs.includes("history");

/** Whether the session may read earlier states. @param {any} k @param {string} verb @param {string} [namespace] @param {string} [name] */
export const mayPast = async (k, verb, namespace, name) => hasPast(k) && await may(verb, k.group, k.resource, namespace, name) && may("history", k.group, k.resource, namespace, name);

/** Whether a page offers the history: also of a kind of which the server keeps none, to say so. @param {any} k @param {string} verb @param {string} [namespace] @param {string} [name] */
export const offersPast = async (k, verb, namespace, name) => (!hasPast(k) && k.verbs.includes("watch") && k.verbs.includes("delete")) || mayPast(k, verb, namespace, name);

/** Why the session sees no earlier states of a kind. @param {any} k @param {string} [namespace] */
export const noPast = (k, namespace) => hasPast(k) ? `Your roles have no right to the history of ${k.resource}${namespace ? " in " + namespace : ""}: that needs the verb history.`
  : `The server keeps no history of ${k.resource}: its settings history-for and history-exclude say of what it does.`;

/** Where a path is answered as of then. @param {string} at a time or a version; empty: now */
export const pastPath = (at) => (at ? "/at/" + encodeURIComponent(at) : "");

const isVersion = (/** @type {string} */ at) => /^\d+$/.test(at);
const second = (/** @type {number} */ ms) => new Date(ms).toISOString().slice(0, 19) + "Z";
const local = (/** @type {number} */ ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60000).toISOString().slice(0, 19);
const words = (/** @type {string} */ at) => (!at ? "now" : isVersion(at) ? "version " + at : new Date(at).toLocaleString());

/** Choose a time. The slider is the finer the nearer it is to now; it begins with the namespace, and a week ago at most. @param {{namespace: string}} props */
export function When({ namespace }) {
  const [at] = choice("at");
  const [slid, setSlid] = useState(/** @type {number | null} */ (null)), [left, setLeft] = useState({ to: "", place: steps });
  const home = namespace || "default"; // as old as the server
  const from = useAnswer(async (signal) => (await may("get", "", "namespaces", "", home) ? new Date((await get("/api/v1/namespaces/" + encodeURIComponent(home), { signal })).metadata.creationTimestamp).getTime() : 0), 0, [home]).data || 0;
  const now = Date.now(), reach = Math.max(0, Math.min(week, now - from - 1000) - over);
  const time = !at ? now : isVersion(at) ? NaN : new Date(at).getTime();
  const timeOf = (/** @type {number} */ p) => now - over - reach * ((steps - p) / steps) ** 3;
  const go = (/** @type {string} */ to, /** @type {number} */ place) => { setSlid(null); setLeft({ to, place }); choose({ at: to, history: "yes" }); };
  // Where the slider was left, it stays: the second that it means may be that of its neighbours, too.
  const place = slid ?? (left.to === at && left.place >= 0 ? left.place : isNaN(time) || !at ? steps : Math.round(steps * (1 - Math.cbrt(Math.max(0, Math.min(1, (now - over - time) / (reach || 1)))))));
  const shown = slid === null ? words(at) : slid === steps ? "now" : new Date(timeOf(slid)).toLocaleString();
  return html`<div class="when"><input type="range" id="time" aria-label="Time" aria-valuetext=${shown} min="0" max=${steps} value=${place} onInput=${(/** @type {any} */ e) => setSlid(Number(e.target.value))} onChange=${(/** @type {any} */ e) => { const p = Number(e.target.value); go(p === steps ? "" : second(timeOf(p)), p); }} />
    <span id="shown-time" role="status">${shown}</span>
    <input type="datetime-local" step="1" aria-label="Exact time" value=${isNaN(time) || !at ? "" : local(time)} onChange=${(/** @type {any} */ e) => { const t = new Date(e.target.value).getTime(); if (t) go(t > now - over ? "" : second(t), -1); }} />
    <button type="button" class="small" disabled=${!at} onClick=${() => go("", steps)}>Now</button></div>`;
}

/** The history of an object, on its page. @param {{kind: any, namespace: string, name: string, object?: any}} props object: what has the name now */
export function History({ kind, namespace, name, object }) {
  const [at] = choice("at");
  const right = useRight(() => mayPast(kind, "get", namespace, name), [kind.group + kind.resource, namespace, name]);
  const close = html`<button type="button" class="small" onClick=${() => choose({ history: "", at: "", against: "", revert: "" })}>Close the history</button>`;
  const whole = kind.kind === "Namespace" && !kind.group;
  const reference = { apiVersion: apiVersion(kind), kind: kind.kind, namespace: namespace || undefined, name };
  return html`<${Panel} title=${whole ? "History of all that is in it" : "History"} wide actions=${close}>
    ${right === false && html`<p class="notice">${noPast(kind, namespace)}</p>`}
    ${right && html`${whole && html`<${When} namespace=${name} />${at && html`<${Changed} only=${null} namespace=${name} at=${at} />`}`}
      <${Versions} kind=${kind} namespace=${namespace} name=${name} object=${object} slider=${!whole}>${(/** @type {string} */ to) => to && html`<${Reverting} reference=${reference} kind=${kind} to=${to} version=${object && object.metadata.resourceVersion} />`}<//>
      <${Restores} title="Brought back to an earlier state" of=${(/** @type {any} */ r) => !!r.spec.to && r.spec.object && r.spec.object.kind === kind.kind && r.spec.object.name === name && (r.spec.object.namespace || "") === (namespace || "")} deps=${[object && object.metadata.resourceVersion, at]} />`}<//>`;
}

/** The versions of a name, the newest first; of the chosen one its content, or what differs. The child is what can be done with the chosen time.
 * @param {{kind: any, namespace: string, name: string, object?: any, slider: boolean, children?: any}} props */
function Versions({ kind, namespace, name, object, slider, children }) {
  const [at, setAt] = choice("at");
  const [against, setAgainst] = choice("against", ["before", "now", "whole"]);
  const [slid, setSlid] = useState(/** @type {number | null} */ (null));
  const path = "/at/versions" + pathOf(kind, namespace, name);
  const first = useAnswer((signal) => get(path, { signal }), 0, [path], object && object.metadata.resourceVersion);
  const [older, setOlder] = useState(/** @type {{items: any[], more?: string}} */ ({ items: [] }));
  const newest = first.data ? first.data.items : [], known = new Set(newest.map((/** @type {any} */ v) => v.version));
  const all = [...newest, ...older.items.filter((v) => !known.has(v.version))];
  const more = older.more ?? (first.data && first.data.metadata.continue);
  const load = async () => { const list = await get(path + query({ continue: more })); setOlder({ items: [...older.items, ...list.items], more: list.metadata.continue || "" }); };
  // A time means the end of its second.
  const found = !at ? 0 : all.findIndex((v) => (isVersion(at) ? Number(v.version) <= Number(at) : v.time && new Date(v.time).getTime() < new Date(at).getTime() + 1000));
  useEffect(() => { if (first.data && found < 0 && more) load().catch(() => {}); }, [first.data, found, more]);
  const chosen = slid ?? found, v = all[chosen], before = all[chosen + 1];
  const was = before && before.uid === (v && v.uid) ? before.object : undefined;
  const text = (/** @type {any} */ o) => (o ? plain({ apiVersion: apiVersion(kind), kind: kind.kind, ...o }) : "");
  const pick = (/** @type {number} */ i) => setAt(i === 0 && object ? "" : all[i].version);
  const one = (/** @type {string} */ value, /** @type {string} */ label) => html`<label><input type="radio" name="against" value=${value} checked=${against === value} onChange=${() => setAgainst(value)} /> ${label}</label>`;
  return html`<${Problem} error=${first.error} />
    ${!first.data && !first.error && html`<${Loading} />`}
    ${first.data && !all.length && html`<p class="empty">The history has no versions of it.</p>`}
    ${all.length > 0 && html`
      ${slider && all.length > 1 && html`<div class="when"><input type="range" id="version" aria-label="Version" min="0" max=${all.length - 1} value=${all.length - 1 - Math.max(0, chosen)} aria-valuetext=${v ? `version ${v.version}, ${new Date(v.time).toLocaleString()}` : words(at)}
        onInput=${(/** @type {any} */ e) => setSlid(all.length - 1 - Number(e.target.value))} onChange=${(/** @type {any} */ e) => { setSlid(null); pick(all.length - 1 - Number(e.target.value)); }} />
        <span>${v ? html`${v.time ? new Date(v.time).toLocaleString() : ""}` : words(at)}</span></div>`}
      ${at && !v && !more && html`<p class="notice">It did not exist at ${words(at)}, or the history does not reach back to it.</p>`}
      ${v && slider && html`<div class="ways" role="radiogroup" aria-label="What is shown">${one("before", "What this change did")}${one("now", "What differs from now")}${one("whole", "The whole object then")}</div>
        <p id="version-shown" role="status">${chosen === 0 && object ? "The newest version: " : "It was "}${v.event} ${v.time && html`<${Age} at=${v.time} />`} by ${v.user || "an unknown user"}${v.event === "removed" ? ". After that it did not exist." : ""}</p>
        ${against === "whole" ? v.object && html`<pre tabindex="0" role="region" aria-label="The object then">${text(v.object)}</pre>`
          : against === "now" && text(v.object) === text(object) ? html`<p class="empty">It is the same now.</p>`
          : html`<${Diff} before=${against === "now" ? text(v.object) : text(was)} after=${against === "now" ? text(object) : text(v.object)} label=${against === "now" ? "What differs from now" : "What this change did"} />`}`}
      ${children(slider ? (v && v.object && (chosen > 0 || !object) ? v.version : "") : at)}
      <h3>${slider ? "Versions" : "Versions of the namespace itself"}</h3>
      <table id="versions"><thead><tr><th scope="col">When</th><th scope="col">What</th><th scope="col">Who</th><th scope="col">With</th><th scope="col">Changed</th></tr></thead>
        <tbody>${all.map((x, i) => html`<tr key=${x.version} class=${x === v && (at || slid !== null) ? "selected" : ""}><td><button type="button" class="link" aria-pressed=${x === v} title=${"Version " + x.version} onClick=${() => pick(i)}>${x.time ? html`<${Age} at=${x.time} />` : "version " + x.version}</button></td><td>${x.event}</td><td>${x.user}</td><td class="faint" title=${x.requestID}>${[x.verb, (x.client || "").split(" ")[0]].filter(Boolean).join(", ")}</td><td>${summary(x.changes)}</td></tr>`)}</tbody></table>
      ${more && html`<p><${Act} run=${load}>Show older ones<//></p>`}`}`;
}

/** What a change did, in a line. @param {any[]} [changes] */
const summary = (changes = []) => changes.slice(0, 3).map((c) => c.field).join(", ") + (changes.length > 3 ? ` and ${changes.length - 3} more` : "");

/** What was created, changed and deleted since a time: of one kind, or of all that a namespace has.
 * @param {{only: any, namespace: string, at: string}} props */
export function Changed({ only, namespace, at }) {
  const found = useAnswer(async (signal) => {
    const all = only ? [only] : (await kinds()).filter((k) => k.namespaced && k.verbs.includes("list"));
    const read = async (/** @type {string} */ path) => {
      const items = [];
      for (let more = ""; ;) {
        const list = await get(path + query({ limit: 2000, continue: more }), { signal, accept: heads });
        items.push(...(list.items || []));
        if (!(more = list.metadata.continue || "")) return items;
      }
    };
    /** @type {{kind: any, m: any, what: string}[]} */
    const out = [];
    let hidden = 0;
    await forEach(all.filter(hasPast), async (kind) => {
      if (!await mayPast(kind, "list", namespace)) { hidden++; return; }
      const path = pathOf(kind, namespace), [then, now] = await Promise.all([read(pastPath(at) + path), read(path)]);
      const key = (/** @type {any} */ o) => (o.metadata.namespace || "") + "/" + o.metadata.name, was = new Map(then.map((o) => [key(o), o.metadata]));
      for (const { metadata: m } of now) {
        const old = was.get(key({ metadata: m }));
        was.delete(key({ metadata: m }));
        if (!old || old.resourceVersion !== m.resourceVersion) out.push({ kind, m, what: !old ? "created" : old.uid !== m.uid ? "deleted, and created again" : "changed" });
      }
      for (const m of was.values()) out.push({ kind, m, what: "deleted" });
    });
    return { hidden, rows: out.sort((a, b) => (a.kind.kind + "/" + a.m.name).localeCompare(b.kind.kind + "/" + b.m.name)) };
  }, 0, [only && only.group + only.resource, namespace, at]);
  const rows = found.data ? found.data.rows : [];
  const n = (/** @type {string} */ what) => rows.filter((r) => r.what.startsWith(what)).length;
  return html`<${Problem} error=${found.error} />
    ${!found.data && !found.error && html`<${Loading} label="Comparing then and now" />`}
    ${found.data && html`<p id="changed" role="status">Since then ${n("created")} created, ${n("changed")} changed, ${n("deleted")} deleted.${found.data.hidden ? ` You may not see the past of ${count(found.data.hidden, "kind")}.` : ""}</p>
      ${rows.length > 0 && html`<table><thead><tr><th scope="col">Object</th><th scope="col">Since then</th></tr></thead>
        <tbody>${rows.slice(0, mostNamed).map(({ kind, m, what }) => html`<tr key=${kind.resource + m.namespace + m.name} data-name=${m.name}><td><a href=${objectLink(kind, m.namespace, m.name) + query({ history: "yes", at, against: "now" })}><span class="kind">${kind.kind}</span> ${m.name}${m.namespace && m.namespace !== namespace && html`<span class="faint"> in ${m.namespace}</span>`}</a></td>
          <td><${State} state=${what === "changed" ? "stays" : what === "created" ? "live" : "gone"} text=${what} /></td></tr>`)}</tbody></table>`}
      ${rows.length > mostNamed && html`<p class="faint">The first ${mostNamed} of ${count(rows.length, "object")}.</p>`}`}`;
}

/** Bring a state back: the plan, as the server would do it, then the button. @param {{reference: any, kind: any, to: string, version?: string}} props */
function Reverting({ reference, kind, to, version }) {
  const { namespace, name } = reference;
  const [open, setOpen] = choice("revert");
  const [typed, setTyped] = useState("");
  const right = useRight(async () => await may("create", "lifecycle.exeunt.dev", "restores") && (await may("update", kind.group, kind.resource, namespace, name) || may("create", kind.group, kind.resource, namespace)), [kind.group + kind.resource, namespace, name]);
  const plan = useAnswer(async (signal) => (open && right ? ask("restores", "Restore", { object: reference, to, dryRun: true }, signal) : undefined), 0, [open, right, to, version]);
  const s = plan.data, comes = s ? s.created + (s.changed || 0) + (s.deleted || 0) : 0;
  const must = !!s && s.deleted >= large;
  const run = async () => { await restore({ object: reference, to }); choose({ at: "", revert: "" }); };
  if (right === false) return html`<p class="faint">Your roles have no right to bring it back: that needs create on restores, and update on ${kind.resource}.</p>`;
  return html`${right && !open && html`<p class="actions"><button type="button" id="revert" onClick=${() => setOpen("plan")}>What would going back to this change?</button></p>`}
    ${right && open && html`<h3>Go back to ${words(to)}</h3><${Problem} error=${plan.error} />
      ${!s && !plan.error && html`<${Loading} label="Working out the plan" />`}
      ${s && html`<p id="revert-plan" role="status">${comes || s.failed ? `${s.created} would be created, ${s.changed || 0} changed, ${s.deleted || 0} deleted${s.failed ? `, ${s.failed} cannot go back` : ""}.` : "Nothing would change."}${kind.kind === "Namespace" ? " What has a controller is left to it." : ""}</p>
        ${must && html`<p><label>${count(s.deleted, "object")} will be deleted. Type <strong>${name}</strong> to confirm: <input id="confirm-name" autocomplete="off" value=${typed} onInput=${(/** @type {any} */ e) => setTyped(e.target.value)} /></label></p>`}
        <p class="actions"><${Act} id="revert-now" kind="primary" disabled=${!comes || (must && typed !== name)} run=${run}>Go back<//><button type="button" onClick=${() => setOpen("")}>Leave it</button></p>
        <${Command} text=${`exeunt revert ${kind.resource}${kind.group ? "." + kind.group : ""}/${name}${namespace ? " -n " + namespace : ""} --to ${to}`} />
        ${comes + s.failed > 0 && html`<${Results} results=${s.results} plan />`}`}`}`;
}
