// @ts-check
// What every page uses: the view library, small components, and hooks that keep a
// page up to date.

import { html, render, useState, useEffect, useRef, useLayoutEffect, useMemo } from "./vendor/htm-preact.js";
import { kindOf, kinds } from "./api.js";
import { choice, choose, useSelection } from "./address.js";

export { html, render, useState, useEffect, useRef, useLayoutEffect, useMemo, choice, choose, useSelection };

/** Run a question now and then every so often, while the page is visible. The last
 * answer stays while the next one is on its way.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} question @param {number | ((data: T | undefined) => number)} every milliseconds, for the last answer; 0: once @param {any[]} deps
 * @param {any} [version] asks again when it changes; the answer, and with it what has the focus, stays until then
 * @returns {{data: T | undefined, error: Error | undefined, again: () => void}} */
export function useAnswer(question, every, deps, version) {
  const [state, setState] = useState(/** @type {{data?: T, error?: Error}} */ ({}));
  const again = useRef(() => {});
  const asked = useRef(deps);
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    let running = false;
    let next = typeof every === "number" ? every : every(undefined);
    const run = async () => {
      clearTimeout(timer);
      if (running) return;
      running = true;
      try {
        const data = await question(stop.signal);
        if (typeof every !== "number") next = every(data);
        if (!stop.signal.aborted) setState({ data });
      } catch (err) {
        if (!stop.signal.aborted) setState((s) => ({ data: s.data, error: /** @type {Error} */ (err) }));
      }
      running = false;
      if (next && !stop.signal.aborted && !document.hidden) timer = setTimeout(run, next);
    };
    const shown = () => { if (!document.hidden && next) run(); };
    document.addEventListener("visibilitychange", shown);
    again.current = run;
    if (deps.some((d, i) => d !== asked.current[i])) setState({});
    asked.current = deps;
    run();
    return () => { stop.abort(); clearTimeout(timer); document.removeEventListener("visibilitychange", shown); };
  }, [...deps, version]);
  return { data: state.data, error: state.error, again: () => again.current() };
}

/** What a list has beyond what is shown of it. @param {{of: {more: number} | undefined}} props */
export function More({ of }) { return of && of.more > 0 ? html`<p class="faint">${of.more.toLocaleString("en")} more are not shown.</p>` : null; }

/** What can be done now, by what offers it: the palette lists it. @type {Map<any, {label: string, run: () => any}[]>} */
export const actions = new Map();

/** Offer actions while a page or a part of it is shown. @param {{label: string, run: () => any}[]} list */
export function useActions(list) {
  const me = useRef({}).current;
  useLayoutEffect(() => { actions.set(me, list); return () => { actions.delete(me); }; });
}

/** An action that leads to another page. @param {string} label @param {string} href */
export const leadsTo = (label, href) => ({ label, run: () => { location.hash = href; } });

/** A field that narrows a list; its text is in the address. @param {{label: string, name?: string, short?: string}} props */
export function Filter({ label, name = "q", short }) {
  const [text, setText] = choice(name);
  return html`<input type="search" aria-label=${label} placeholder=${short || label} value=${text} onInput=${(/** @type {any} */ e) => setText(e.target.value)} />`;
}

/** The current time, renewed every second. */
export function useNow() {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) setNow(Date.now()); }, 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

/** A duration as people say it: 5s, 3m, 2h, 4d. @param {number} ms */
export function duration(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 120) return s + "s";
  if (s < 2 * 3600) return Math.floor(s / 60) + "m";
  if (s < 2 * 86400) return Math.floor(s / 3600) + "h";
  return Math.floor(s / 86400) + "d";
}

/** @param {{at?: string | null, suffix?: string}} props */
export function Age({ at, suffix }) {
  const now = useNow();
  if (!at) return html`<span class="faint">–</span>`;
  const time = new Date(at).getTime();
  const text = time > now ? "in " + duration(time - now) : duration(now - time) + (suffix === undefined ? " ago" : suffix);
  return html`<time dateTime=${at} title=${new Date(at).toLocaleString()}>${text}</time>`;
}

/** @param {number} n */
export function bytes(n) {
  if (n === undefined || n === null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return (i === 0 ? n : n.toFixed(n < 10 ? 1 : 0)) + " " + units[i];
}

/** @param {number} n @param {string} one @param {string} [many] */
export function count(n, one, many) { return n.toLocaleString("en") + " " + (n === 1 ? one : many || one + "s"); }

/** A state, with its sign and its word: never colour alone.
 * @param {{state: "live"|"leaving"|"held"|"gone"|"back"|"stays", text?: string}} props */
export function State({ state, text }) {
  const sign = { live: "●", leaving: "↘", held: "■", gone: "∅", back: "↩", stays: "◆" }[state];
  return html`<span class=${"state " + state}><span aria-hidden="true">${sign}</span> ${text || state}</span>`;
}

/** The state that an action of a preview means. @param {string} action */
export function actionState(action) {
  return /** @type {any} */ ({ Delete: "leaving", Wait: "leaving", Block: "held", Keep: "stays", Orphan: "stays" })[action] || "live";
}

/** @param {{error?: Error}} props */
export function Problem({ error }) {
  const { code, status } = /** @type {any} */ (error || {});
  if (!error || (status && status.repeated)) return null; // the shell says that the server does not answer
  return html`<p class="problem" role="alert"><strong>${code !== 403 ? "This did not work." : status && status.read ? "You may not see this." : "You may not do this."}</strong> ${error.message}</p>`;
}

/** @param {{label?: string}} props */
export function Loading({ label }) { return html`<p class="faint loading" role="status">${label || "Loading"}…</p>`; }

/** A page: its heading, its actions, its content.
 * @param {{title: any, actions?: any, children?: any, sub?: any}} props */
export function Page({ title, actions, children, sub }) {
  const heading = useRef(/** @type {any} */ (null));
  useLayoutEffect(() => { document.title = heading.current.textContent + " · Exeunt"; });
  return html`<main id="main" tabindex="-1">
    <header class="page"><div><h1 ref=${heading}>${title}</h1>${sub && html`<p class="sub">${sub}</p>`}</div>${actions && html`<div class="actions">${actions}</div>`}</header>
    ${children}
  </main>`;
}

/** A section with a heading. @param {{title: any, actions?: any, children?: any, wide?: boolean}} props */
export function Panel({ title, actions, children, wide }) {
  const box = useRef(/** @type {any} */ (null));
  // What scrolls sideways can be reached by keyboard. A wide window has room for every table.
  useLayoutEffect(() => { const el = box.current, on = innerWidth <= 1100 && el.scrollWidth > el.clientWidth; if (on) el.tabIndex = 0; else el.removeAttribute("tabindex"); });
  return html`<section ref=${box} class=${"panel" + (wide ? " wide" : "")}>
    <header><h2>${title}</h2>${actions && html`<div class="actions">${actions}</div>`}</header>${children}</section>`;
}

/** Where an object's page is; that of a cascade is the page of the deletion. @param {{group: string, version: string, resource: string}} k @param {string} [ns] @param {string} [name] */
export function objectLink(k, ns, name) {
  if (k.resource === "cascades" && k.group === "lifecycle.exeunt.dev" && name) return `#/deletion/${encodeURIComponent(ns || "-")}/${encodeURIComponent(name)}`;
  return `#/object/${k.group || "core"}/${k.resource}/${encodeURIComponent(ns || "-")}/${encodeURIComponent(name || "")}`;
}

/** A reference to an object, as a link to its page.
 * @param {{object: {apiVersion?: string, kind?: string, namespace?: string, name?: string}, plain?: boolean}} props */
export function Ref({ object: o, plain }) {
  const [href, setHref] = useState("");
  useEffect(() => {
    let live = true;
    if (!plain && o.kind && o.name) kindOf(o.apiVersion || "v1", o.kind).then((k) => { if (live && k) setHref(objectLink(k, o.namespace, o.name)); }).catch(() => {});
    return () => { live = false; };
  }, [o.apiVersion, o.kind, o.namespace, o.name, plain]);
  const text = html`<span class="kind">${o.kind}</span> <span class="name">${o.name}</span>${o.namespace && html`<span class="faint"> in ${o.namespace}</span>`}`;
  return href ? html`<a href=${href}>${text}</a>` : html`<span>${text}</span>`;
}

/** @param {{text: string, label: string}} props */
export function Copy({ text, label }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button type="button" class="small" onClick=${copy} aria-label=${"Copy" + label}>${done ? "Copied" : "Copy"}</button>`;
}

/** Text that is made to be copied. @param {{text: string}} props */
export function Command({ text }) { return html`<div class="command"><code>${text}</code><${Copy} text=${text} label=${": " + text} /></div>`; }

/** A dialog that is modal and ends with Escape.
 * @param {{title: string, onClose: () => void, children?: any, wide?: boolean}} props */
export function Dialog({ title, onClose, children, wide }) {
  const ref = useRef(/** @type {any} */ (null));
  useEffect(() => {
    const box = ref.current, before = /** @type {HTMLElement | null} */ (document.activeElement);
    box.showModal();
    return () => { box.close(); before?.focus(); }; // what is behind an open dialog takes no focus
  }, []);
  return html`<dialog ref=${ref} class=${wide ? "wide" : ""} aria-label=${title} onClose=${onClose} onCancel=${onClose}>
    <h2>${title}</h2>${children}</dialog>`;
}

/** A button that runs something, says that it runs, and shows why it failed.
 * @param {{run: () => Promise<any>, children?: any, kind?: string, disabled?: boolean, id?: string}} props */
export function Act({ run, children, kind, disabled, id }) {
  const [state, setState] = useState(/** @type {{busy?: boolean, error?: Error}} */ ({}));
  const click = async () => {
    setState({ busy: true });
    try {
      await run();
      setState({});
    } catch (err) {
      setState({ error: /** @type {Error} */ (err) });
    }
  };
  return html`<span class="act"><button type="button" id=${id} class=${kind || ""} disabled=${disabled || state.busy} onClick=${click}>${state.busy ? "Working…" : children}</button>
    <${Problem} error=${state.error} /></span>`;
}

/** Rows of which only the visible ones are in the page.
 * @param {{columns: any[], rows: any[], row: (item: any, index: number) => any, height?: number, onEnd?: () => void, label: string, selected?: number}} props */
export function VirtualTable({ columns, rows, row, height = 29, onEnd, label, selected }) {
  const box = useRef(/** @type {any} */ (null));
  const [view, setView] = useState({ top: 0, size: 900 });
  const measure = () => {
    const el = box.current;
    if (!el) return;
    setView({ top: el.scrollTop, size: el.clientHeight });
    if (onEnd && el.scrollTop + el.clientHeight > el.scrollHeight - 20 * height) onEnd();
  };
  useLayoutEffect(measure, [rows.length]);
  useEffect(() => {
    window.addEventListener("resize", measure);
    return () => window.removeEventListener("resize", measure);
  });
  useEffect(() => {
    const el = box.current;
    if (!el || selected === undefined || selected < 0) return;
    const y = selected * height;
    if (y < el.scrollTop) el.scrollTop = y;
    if (y + 3 * height > el.scrollTop + el.clientHeight) el.scrollTop = y + 3 * height - el.clientHeight;
  }, [selected]);
  const first = Math.max(0, Math.floor(view.top / height) - 10);
  const last = Math.min(rows.length, Math.ceil((view.top + view.size) / height) + 10);
  return html`<div class="virtual" ref=${box} onScroll=${measure} tabindex="0" role="region" aria-label=${label}>
    <table aria-rowcount=${rows.length}><thead><tr>${columns.map((c) => (typeof c === "string" ? html`<th scope="col">${c}</th>` : c))}</tr></thead>
    <tbody>
      ${first > 0 && html`<tr aria-hidden="true" class="gap"><td colspan=${columns.length} style=${{ height: first * height + "px" }}></td></tr>`}
      ${rows.slice(first, last).map((item, i) => row(item, first + i))}
      ${last < rows.length && html`<tr aria-hidden="true" class="gap"><td colspan=${columns.length} style=${{ height: (rows.length - last) * height + "px" }}></td></tr>`}
    </tbody></table></div>`;
}

/** The answer to a question about rights; undefined while it is not known.
 * @param {() => Promise<boolean>} question @param {any[]} deps */
export function useRight(question, deps) { return useAnswer(question, 30000, deps).data; }

/** Kinds that can be listed. */
export function useKinds() {
  return useAnswer(async () => (await kinds()).filter((k) => k.verbs.includes("list")), 15000, []);
}
