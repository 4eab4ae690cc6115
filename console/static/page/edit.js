// @ts-check
// The YAML of an object: to read, to copy, and to change. A change is shown as the server would make it before it is made.

import { html, useState, useEffect, useRef, choice, Panel, Problem, Act, Copy } from "../view.js";
import { get, send, pathOf, apiVersion, query } from "../api.js";
import { readable, editable } from "../yaml.js";
import { Diff } from "../diff.js";

/** @param {{object: any, kind: any, right?: boolean}} props */
export function Yaml({ object, kind, right }) {
  const m = object.metadata;
  const [fields, setFields] = choice("fields");
  const [edit, setEdit] = choice("edit");
  const [done, setDone] = useState("");
  const whole = { apiVersion: apiVersion(kind), kind: kind.kind, ...object };
  if (edit && right) return html`<${Editor} key=${m.uid} object=${whole} kind=${kind} onClose=${(/** @type {string} */ note) => { setDone(note); setEdit(""); }} />`;
  const text = readable(whole, !!fields);
  return html`<${Panel} title="YAML" wide actions=${html`<label class="inline"><input type="checkbox" checked=${!!fields} onChange=${() => setFields(fields ? "" : "all")} /> everything, managed fields too</label>
      <${Copy} text=${text} label=" YAML" />${right && html`<button type="button" id="edit" class="small" onClick=${() => { setDone(""); setEdit("yes"); }}>Edit…</button>`}`}>
    ${done && html`<p class="notice" role="status">${done}</p>`}
    <pre class="yaml" tabindex="0" role="region" aria-label="YAML">${coloured(text)}</pre><//>`;
}

/** Keys, texts and other values in different colours. @param {string} text */
function coloured(text) {
  const all = text.split("\n");
  if (all.length > 3000) return text; // elements for each line cost more than the colours give
  let block = -1; // the indent of the key whose text goes over several lines
  return all.map((line) => {
    const indent = line.search(/\S/);
    if (block >= 0 && (indent > block || indent < 0)) return html`<span class="text">${line}</span>${"\n"}`;
    block = -1;
    const [, lead = line, key = "", value = ""] = /^(\s*(?:- )*)("(?:[^"\\]|\\.)*":|[^\s":-][^:"]*:|-)?(.*)$/.exec(line) || [];
    if (/^ \|-?$/.test(value)) block = indent;
    return html`${lead}<span class="key">${key}</span><span class=${/^ ?(true|false|null|-?\d[\d.e+-]*)$/.test(value) ? "other" : "text"}>${value}</span>${"\n"}`;
  });
}

/** The text with the version that was shown: if the object changes meanwhile, the server refuses. @param {string} text @param {string} version */
const at = (text, version) => text.replace(/^metadata:[ \t]*\n( +)(?=\S)/m, (all, indent) => (/^ +resourceVersion:/m.test(text) ? all : `metadata:\n${indent}resourceVersion: "${version}"\n${indent}`));

/** @param {{object: any, kind: any, onClose: (note: string) => void}} props */
function Editor({ object, kind, onClose }) {
  const m = object.metadata, draft = "draft:" + m.uid, path = pathOf(kind, m.namespace, m.name);
  const first = useRef(editable(object)).current;
  const [text, setText] = useState(() => sessionStorage.getItem(draft) || first);
  const [way, setWay] = useState("apply");
  const [plan, setPlan] = useState(/** @type {any} */ (null));
  const write = (/** @type {string} */ body, /** @type {any} */ options) => (way === "apply"
    ? send("PATCH", path + query(options), { type: "application/apply-patch+yaml", body, read: !!options.dryRun })
    : send("PUT", path + query({ dryRun: options.dryRun }), { type: "application/yaml", body, read: !!options.dryRun })).then((a) => a.json());
  const type = (/** @type {string} */ t) => { setText(t); setPlan(null); if (t === first) sessionStorage.removeItem(draft); else sessionStorage.setItem(draft, t); };
  const look = async (/** @type {boolean} */ force) => {
    const now = await get(path);
    const named = (/** @type {any} */ o) => readable({ ...o, apiVersion: object.apiVersion, kind: object.kind, metadata: { ...o.metadata, resourceVersion: undefined } }, false, true);
    try {
      const made = await write(text, { dryRun: "All", force: force || undefined });
      setPlan({ before: named(now), after: named(made), version: now.metadata.resourceVersion, force });
    } catch (err) {
      const causes = ((/** @type {any} */ (err).status || {}).details || {}).causes || [];
      if (!causes.some((/** @type {any} */ c) => c.reason === "FieldManagerConflict")) throw err;
      setPlan({ conflicts: causes });
    }
  };
  const close = (/** @type {string} */ note) => { sessionStorage.removeItem(draft); onClose(note); };
  const apply = async () => {
    const made = await write(at(text, plan.version), { force: plan.force || undefined });
    close(`Saved: it has version ${made.metadata.resourceVersion} now.`);
  };
  const end = useRef(/** @type {any} */ (null));
  useEffect(() => { if (plan) end.current.scrollIntoView({ block: "nearest" }); }, [plan]);
  const change = plan && !plan.conflicts && plan.before !== plan.after;
  return html`<${Panel} title="Edit" wide>
    <textarea id="yaml" aria-label="YAML" spellcheck=${false} rows=${Math.min(30, text.split("\n").length + 2)} value=${text} onInput=${(/** @type {any} */ e) => type(e.target.value)}></textarea>
    <div role="radiogroup" aria-label="How it is written" class="ways">
      <label><input type="radio" name="way" value="apply" checked=${way === "apply"} onChange=${() => { setWay("apply"); setPlan(null); }} /> Apply <span class="faint">sets what the text names; what other managers set elsewhere stays</span></label>
      <label><input type="radio" name="way" value="replace" checked=${way === "replace"} onChange=${() => { setWay("replace"); setPlan(null); }} /> Replace <span class="faint">what the text does not name goes</span></label></div>
    <p class="actions"><${Act} id="look" kind=${change ? "" : "primary"} run=${() => look(false)}>What would change?<//><button type="button" onClick=${() => close("")}>Cancel</button></p>
    ${plan && plan.conflicts && html`<p class="problem" role="alert"><strong>Other managers set these fields to other values.</strong> Nothing has been changed.</p>
      <table id="conflicts"><thead><tr><th scope="col">Field</th><th scope="col">Manager</th></tr></thead><tbody>${plan.conflicts.map((/** @type {any} */ c) => html`<tr><td><code>${c.field}</code></td><td>${c.message}</td></tr>`)}</tbody></table>
      <p class="actions"><${Act} id="force" run=${() => look(true)}>Take these fields over<//></p>`}
    ${plan && !plan.conflicts && !change && html`<p class="notice" role="status">Nothing would change.${way === "apply" && text !== first ? " Apply leaves what the text no longer names, if others set it: Replace removes it." : ""}</p>`}
    ${change && html`<p role="status">The server would change this. Nothing has been changed yet.</p><${Diff} before=${plan.before} after=${plan.after} label="What would change" />
      <p class="actions"><${Act} id="apply" kind="primary" run=${apply}>${plan.force ? "Take over and save" : "Save this"}<//></p>`}
    <span ref=${end}></span><//>`;
}
