// @ts-check
// One field for all that can be found and done: kinds, names, namespaces, and the actions of the page.

import { html, useState, useEffect, actions, choose, objectLink } from "./view.js";
import { get, list as listOf, kinds, pathOf, query, forEach } from "./api.js";

/** @typedef {{what: string, label: string, hint?: string, run: () => any}} Option */

const heads = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const mostOptions = 30;

/** @param {Option} o */
const keyOf = (o) => [o.what, o.label, o.hint].join("\n");

/** The kinds that a word may mean, the best first. @param {string} word */
async function kindsOf(word) {
  if (!word) return [];
  const short = (/** @type {any} */ k) => Number(k.short.includes(word));
  return (await kinds()).filter((k) => k.verbs.includes("list") && (short(k) || k.resource.startsWith(word) || k.singular.startsWith(word)))
    .sort((x, y) => short(y) - short(x) || x.resource.length - y.resource.length).slice(0, 8);
}

/** The objects of a name, or of which it is a part, in one namespace or in all that the session may list. @param {any[]} all kinds @param {string} name @param {string} namespace @param {boolean} [part] */
async function named(all, name, namespace, part) {
  /** @type {Option[]} */
  const found = [];
  /** @type {string[]} the kinds of which not all objects were searched */
  const partly = [];
  await forEach(all, async (k) => {
    const fieldSelector = "metadata.name=" + name.replace(/[\\,=]/g, "\\$&");
    const list = part ? await headsOf(k, namespace) : await get(pathOf(k, namespace) + query({ fieldSelector, limit: mostOptions }), { accept: heads }).catch((err) => {
      if (all.length === 1) throw err; // among many, those that the session may not list are left out
      return {};
    });
    if (part && list.more) partly.push(k.kind);
    for (const o of list.items || []) if (o.metadata.name.includes(name)) found.push(object(k, o.metadata));
  });
  return { found: found.sort((x, y) => (x.what + " " + x.label).localeCompare(y.what + " " + y.label)), partly };
}

/** Heads of a kind, to complete a name from: 5,000 at most, remembered while the list is open.
 * @type {Map<string, Promise<{items: any[], more: number}>>} */
const listed = new Map();

/** @param {any} kind @param {string} namespace */
function headsOf(kind, namespace) {
  const path = pathOf(kind, namespace), known = listed.get(path);
  if (known) return known;
  const list = listOf(path, { accept: heads }).catch(() => ({ items: [], more: 0 })); // what it may not list, it cannot complete
  listed.set(path, list);
  return list;
}

/** @param {any} kind @param {any} m metadata @returns {Option} */
const object = (kind, m) => ({ what: kind.kind, label: m.name, hint: m.namespace || "cluster", run: () => { location.hash = objectLink(kind, m.namespace, m.name); } });

/** What a text may mean, the best first. @param {string} text @param {string} namespace @returns {Promise<Option[]>} */
async function options(text, namespace) {
  const low = text.toLowerCase(), [word] = low.split(/[/ ]/), name = text.split(/[/ ]/).slice(1).join("/").trim();
  const found = await kindsOf(word);
  /** @type {Option[]} */
  const out = [];
  if (name && found.length) {
    const [k] = found, { items, more } = await headsOf(k, namespace), some = items.filter((o) => o.metadata.name.includes(name));
    const exact = some.filter((/** @type {any} */ o) => o.metadata.name === name);
    if (exact.length > 1) out.push({ what: k.kind, label: name, hint: `in ${exact.length} namespaces`, run: () => look([k], name, namespace) });
    for (const o of some.sort((/** @type {any} */ a, /** @type {any} */ b) => Number(b.metadata.name === name) - Number(a.metadata.name === name)).slice(0, 15)) out.push(object(k, o.metadata));
    if (!exact.length) out.push({ what: k.kind, label: name, hint: more ? `look for this name: the first ${items.length.toLocaleString("en")} were searched for a part of it` : "look for this name", run: () => look([k], name, namespace) });
  } else {
    for (const k of found) out.push({ what: "Kind", label: k.kind, hint: k.group || "core", run: () => { location.hash = `#/objects/${k.group || "core"}/${k.resource}`; } });
  }
  for (const a of [...actions.values()].flat()) if (a.label.toLowerCase().includes(low)) out.push({ what: "Do", label: a.label, run: a.run });
  const [namespaces] = text ? await kindsOf("namespaces") : [];
  if (namespaces) for (const o of (await headsOf(namespaces, "")).items.filter((n) => n.metadata.name.includes(low)).slice(0, 5)) out.push({ what: "Namespace", label: o.metadata.name, hint: "show only this one", run: () => choose({ ns: o.metadata.name, row: "", sel: "" }, true) });
  if (text && !(name && found.length)) out.push({ what: "Objects", label: text, hint: "of any kind with this name, or with this in their name", run: async () => look((await kinds()).filter((x) => x.verbs.includes("list") && x.group !== "lifecycle.exeunt.dev"), text, namespace) });
  return out.slice(0, mostOptions);
}

/** Go to the object of a name, or return those that there are; if there is none, those of which it is a part. @param {any[]} all @param {string} name @param {string} namespace */
async function look(all, name, namespace) {
  let { found, partly } = await named(all, name, namespace);
  if (!found.length && all.length > 1) ({ found, partly } = await named(all, name, namespace, true));
  if (found.length === 1) return found[0].run();
  const rest = partly.length ? ` Of ${partly.join(", ")} a part was searched.` : "";
  if (!found.length) throw new Error(`No ${all.length === 1 ? all[0].kind : "kind begins with “" + name + "”, and no object"} is named ${all.length === 1 ? "" : "like "}${name} ${namespace ? "in " + namespace : "in any namespace"}.${rest}`);
  const more = () => { throw new Error(`Write more of the name.${rest}`); };
  return found.length <= mostOptions && !rest ? found : [...found.slice(0, mostOptions), { what: "…", label: found.length > mostOptions ? `${(found.length - mostOptions).toLocaleString("en")} more` : "and perhaps others", hint: rest.trim(), run: more }];
}

/** @param {{input: any, show: {current: () => void}, namespace: string}} props show opens the list: the Tab key alone does not */
export function Palette({ input, show, namespace }) {
  const [text, setText] = useState("");
  const [open, setOpen] = useState(false);
  show.current = () => setOpen(true);
  const [list, setList] = useState(/** @type {Option[]} */ ([]));
  const [chosen, setChosen] = useState(""); // the option that the arrows chose: it stays the same when another list comes
  const at = list.findIndex((o) => keyOf(o) === chosen);
  const [hint, setHint] = useState("");
  useEffect(() => {
    let live = true;
    setHint("");
    if (!open) listed.clear();
    if (open) options(text.trim(), namespace).then((all) => { if (live) setList(all); }, () => {});
    return () => { live = false; };
  }, [text, open, namespace]);
  const close = () => { setText(""); setChosen(""); setOpen(false); setList([]); input.current.blur(); };
  const run = async (/** @type {Option | undefined} */ option) => {
    if (!option) return;
    setHint("Searching…");
    try {
      const more = await option.run();
      if (Array.isArray(more)) { setList(more); setHint(""); } else close();
    } catch (err) { setHint(/** @type {Error} */ (err).message); }
  };
  const shown = open && !hint && list.length > 0;
  const key = (/** @type {KeyboardEvent} */ e) => {
    if (e.key === "Escape") close();
    const step = e.key === "ArrowDown" ? 1 : e.key === "ArrowUp" ? -1 : 0;
    if (step) { e.preventDefault(); setOpen(true); }
    if (!step || !shown) return;
    const next = (Math.max(at, step > 0 ? -1 : 0) + step + list.length) % list.length;
    setChosen(keyOf(list[next]));
    document.getElementById("option-" + next)?.scrollIntoView({ block: "nearest" });
  };
  // The field, not the state: the last letters may not be drawn yet.
  const submit = (/** @type {Event} */ e) => {
    e.preventDefault();
    const words = input.current.value.trim();
    if (at >= 0 && list[at]) run(list[at]); else if (words) options(words, namespace).then((all) => run(all[0]), (err) => setHint(err.message));
  };
  const leave = (/** @type {FocusEvent} */ e) => { if (!(/** @type {HTMLElement} */ (e.currentTarget).contains(/** @type {Node | null} */ (e.relatedTarget)))) setOpen(false); };
  return html`<form class="search" role="search" onSubmit=${submit} onFocusOut=${leave}>
    <input ref=${input} type="search" role="combobox" aria-expanded=${shown} aria-controls=${shown ? "options" : undefined} aria-autocomplete="list" aria-activedescendant=${at >= 0 ? "option-" + at : undefined} autocomplete="off"
      aria-label="Search and do: a kind, a name, kind/name, a namespace, an action" placeholder="Search or do…   (Ctrl-K)" value=${text} onClick=${() => setOpen(true)} onInput=${(/** @type {any} */ e) => { setText(e.target.value); setOpen(true); }} onKeyDown=${key} />
    ${open && hint && html`<p class="hint" role="alert">${hint}</p>`}
    ${shown && html`<ul class="found" id="options" role="listbox" aria-label="Found">${list.map((o, i) => html`<li key=${keyOf(o)} id=${"option-" + i} role="option" aria-selected=${i === at} onMouseDown=${(/** @type {Event} */ e) => e.preventDefault()} onClick=${() => run(o)}><span class="kind">${o.what}</span> ${o.label} <span class="faint">${o.hint}</span></li>`)}</ul>`}</form>`;
}
