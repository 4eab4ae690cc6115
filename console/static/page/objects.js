// @ts-check
// Objects: every kind, its table with the server's columns, kept up to date by a watch.

import { html, useState, useEffect, useRef, useMemo, useAnswer, useKinds, useRight, useActions, leadsTo, useSelection, choice, choose, Page, Problem, Loading, Filter, VirtualTable, State, Age, objectLink, count } from "../view.js";
import { get, may, watch, pause, pathOf, kindOf, query, forEach, Failure } from "../api.js";
import { mostChosen } from "./many.js";
import { When, Changed, mayPast, noPast, offersPast, pastPath } from "./history.js";

const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io", asHeads = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const pageSize = 250;
/** The most rows that the page keeps. Beyond it, a filter is the better way. */
const mostRows = 20000;

/** @param {{namespace: string}} props */
export function Kinds({ namespace }) {
  const all = useKinds();
  const [filter] = choice("q");
  const shown = (all.data || []).filter((k) => (k.resource + k.group + k.kind).toLowerCase().includes(filter.toLowerCase()));
  const counts = useCounts(all.data || [], namespace);
  return html`<${Page} title="Objects" sub=${namespace ? "in namespace " + namespace : "in all namespaces"}
    actions=${html`<${Filter} label="Filter kinds" />`}>
    <${Problem} error=${all.error} />
    ${!all.data && !all.error && html`<${Loading} />`}
    <ul class="kinds">${shown.map((k) => html`<li key=${k.resource + k.group}><a href=${`#/objects/${k.group || "core"}/${k.resource}`}>
      <span class="name">${k.kind}</span><span class="faint">${k.group || "core"}</span><span class=${counts.get(k.group + "/" + k.resource) === "0" ? "number zero" : "number"}>${counts.get(k.group + "/" + k.resource) ?? ""}</span></a></li>`)}</ul>
  <//>`;
}

/** How many objects of each kind there are: one small request a kind, a few at a time, again every 15 seconds.
 * @param {any[]} kinds @param {string} namespace @returns {Map<string, string>} */
function useCounts(kinds, namespace) {
  return useAnswer(async (signal) => {
    const counts = new Map();
    await forEach(kinds, async (k) => {
      // Cascades are not counted by the server: a page of them is.
      const list = await get(pathOf(k, namespace) + "?limit=" + (k.resource === "cascades" ? 500 : 1), { signal, accept: asHeads }).catch((err) => { if (!err.code) throw err; });
      if (!list) return; // a kind that this person may not list has no number
      const n = (list.items || []).length + (list.metadata.remainingItemCount || 0);
      counts.set(k.group + "/" + k.resource, n.toLocaleString("en") + (list.metadata.continue && !list.metadata.remainingItemCount ? "+" : ""));
    });
    return counts;
  }, 15000, [kinds.map((k) => k.group + "/" + k.resource).join(), namespace]).data || new Map();
}

/**
 * Rows by namespace and name, as the server lists them; left: how many there are beyond them, if the server says so.
 * @typedef {{columns: any[], rows: any[], more: string, left?: number, error?: Error, version: string, loading: boolean}} Rows
 */

/** @param {any} row */
const key = (row) => (row.object.metadata.namespace || "") + "\u0000" + row.object.metadata.name;

/** Put a changed row where it belongs. It is pure. @param {Rows} s @param {string} type @param {any[]} changed @returns {Rows} */
export function apply(s, type, changed) {
  let rows = s.rows;
  for (const row of changed) {
    const k = key(row);
    let lo = 0, hi = rows.length;
    while (lo < hi) { const mid = (lo + hi) >> 1; if (key(rows[mid]) < k) lo = mid + 1; else hi = mid; }
    const there = lo < rows.length && key(rows[lo]) === k;
    if (type === "DELETED") { if (there) rows = [...rows.slice(0, lo), ...rows.slice(lo + 1)]; }
    else if (there) { rows = [...rows]; rows[lo] = row; }
    else if (lo < rows.length || !s.more) rows = [...rows.slice(0, lo), row, ...rows.slice(lo)];
  }
  return rows === s.rows ? s : { ...s, rows };
}

/** @param {any} kind @param {string} namespace @param {string} labelSelector @param {string} at a time or a version; empty: now */
function useRows(kind, namespace, labelSelector, at) {
  const [state, setState] = useState(/** @type {Rows} */ ({ columns: [], rows: [], more: "", version: "", loading: true }));
  const loadMore = useRef(() => {});
  useEffect(() => {
    if (!kind) return;
    const stop = new AbortController();
    const { signal } = stop;
    const base = pastPath(at) + pathOf(kind, namespace);
    let current = /** @type {Rows} */ ({ columns: [], rows: [], more: "", version: "", loading: true });
    let frame = 0;
    // Many events may come in one frame: the page draws once.
    const set = (/** @type {Rows} */ next) => {
      current = next;
      if (!frame) frame = requestAnimationFrame(() => { frame = 0; setState(current); });
    };
    // What changed beyond the rows that are loaded: the pages to come are of the time of the first one. by: how many more or fewer there are since.
    /** @type {Map<string, {type: string, row: any, by: number}>} */
    const late = new Map();
    const load = async (/** @type {string} */ more) => {
      const { columnDefinitions, rows = [], metadata: m } = await get(base + query({ limit: pageSize, continue: more, labelSelector, includeObject: "Metadata" }), { signal, accept: asTable });
      const columns = columnDefinitions && columnDefinitions.length ? columnDefinitions : current.columns;
      if (!more) late.clear();
      /** @type {Rows} */
      let next = { columns, rows: more ? [...current.rows, ...rows] : rows, more: m.continue || "", left: m.continue ? m.remainingItemCount : 0, version: more ? current.version : m.resourceVersion, loading: false };
      const last = rows.length ? key(rows[rows.length - 1]) : "";
      for (const [k, { type, row, by }] of late) {
        if (!next.more || k <= last) { late.delete(k); next = apply(next, type, [row]); } else if (next.left !== undefined) next.left += by;
      }
      set(next);
    };
    let busy = false;
    loadMore.current = async () => {
      if (busy || !current.more || current.rows.length >= mostRows) return;
      busy = true;
      const failed = (/** @type {any} */ err) => { if (!signal.aborted) set({ ...current, error: err }); };
      await load(current.more).catch((err) => {
        // The server has forgotten the time of the first page: the next one is of now.
        if (err.code !== 410 || !err.status.metadata.continue) return failed(err);
        late.clear();
        return load(err.status.metadata.continue).catch(failed);
      });
      busy = false;
    };
    const happened = (/** @type {string} */ type, /** @type {any[]} */ rows) => {
      const last = current.more && current.rows.length ? key(current.rows[current.rows.length - 1]) : undefined, beyond = last === undefined ? [] : rows.filter((r) => key(r) > last);
      const by = type === "ADDED" ? 1 : type === "DELETED" ? -1 : 0;
      for (const row of beyond) late.set(key(row), { type, row, by: by + (late.get(key(row))?.by || 0) });
      set(beyond.length ? { ...current, left: current.left === undefined ? undefined : current.left + by * beyond.length } : apply(current, type, rows));
    };
    const run = async () => {
      while (!signal.aborted) {
        try {
          if (!current.version) await load("");
          if (at) return; // the past does not change
          if (!kind.verbs.includes("watch")) { // its first page is read again and again
            await pause(5000, signal);
            if (current.rows.length <= pageSize) current = { ...current, version: "" };
            continue;
          }
          // A watch ends now and then, and when the server restarts. The next one goes on there, and what was loaded stays.
          for await (const event of watch(base + query({ watch: "true", resourceVersion: current.version, labelSelector, includeObject: "Metadata", allowWatchBookmarks: "true", timeoutSeconds: 300 }), { signal, accept: asTable })) {
            if (event.type === "ERROR") throw new Failure(event.object.code, event.object.message);
            current = { ...current, version: event.object.metadata.resourceVersion || current.version };
            if (event.type !== "BOOKMARK") happened(event.type, event.object.rows || []);
          }
        } catch (err) {
          if (signal.aborted) return;
          const { code } = /** @type {any} */ (err);
          if (code) current = { ...current, version: "" };
          if (code && code !== 410) set({ ...current, error: /** @type {Error} */ (err), loading: false });
          if (code === 400 || code === 403 || (code && at)) return;
          await pause(2000, signal);
        }
      }
    };
    run();
    return () => { stop.abort(); cancelAnimationFrame(frame); };
  }, [kind && kind.group + kind.resource, namespace, labelSelector, at]);
  return { ...state, loadMore: () => loadMore.current() };
}

/** @param {{group: string, resource: string, namespace: string}} props */
export function Objects({ group, resource, namespace }) {
  const all = useKinds();
  const kind = (all.data || []).find((k) => k.resource === resource && k.group === (group === "core" ? "" : group));
  const [text] = choice("q");
  const [labels, setLabels] = choice("labels");
  const [only, setOnly] = choice("show", ["all", "deleting", "orphans", "dangling"]);
  const [at] = choice("at"), [history, setHistory] = choice("history"), [since, setSince] = choice("since");
  const rows = useRows(kind, namespace, labels, at);
  const dangling = useDangling(rows.rows, only === "dangling");
  const [sort, setSort] = choice("sort");
  const [cols, setCols] = choice("cols");
  const [sel] = choice("sel");
  const mayLook = useRight(async () => !!kind && mayPast(kind, "list", namespace), [kind && kind.group + kind.resource, namespace]);
  const offered = useRight(async () => !!kind && offersPast(kind, "list", namespace), [kind && kind.group + kind.resource, namespace]);
  const right = useRight(async () => !!kind && !at && kind.verbs.includes("delete") && kind.verbs.includes("watch") && may("delete", kind.group, kind.resource, namespace), [kind && kind.group + kind.resource, namespace, at]);
  const shown = useMemo(() => sorted(rows.rows.filter((r) => matches(r, text, only, dangling)), sort, rows.columns), [rows.rows, rows.columns, text, only, dangling, sort]);
  const chosen = useMemo(() => new Set(sel.split(",").filter(Boolean)), [sel]);
  const select = (/** @type {Iterable<string>} */ keys) => choose({ sel: [...keys].join() });
  const toggle = (/** @type {any} */ r) => { const next = new Set(chosen); if (!next.delete(place(r))) next.add(place(r)); select(next); };
  const selected = useSelection(shown.map(key), (i) => { const m = shown[i].object.metadata; location.hash = objectLink(/** @type {any} */ (kind), m.namespace, m.name) + then; }, right ? (i) => toggle(shown[i]) : undefined);
  const href = kind && `#/delete-many/${kind.group || "core"}/${kind.resource}${query({ sel, ns: namespace })}`;
  const then = at ? query({ history: "yes", at, against: "now" }) : "";
  useActions(!href ? [] : [...(offered && !history ? [{ label: "Look at an earlier time…", run: () => setHistory("yes") }] : []), ...(!right ? [] : [{ label: "Choose all that are shown", run: () => select(shown.slice(0, mostChosen).map(place)) }, ...(chosen.size ? [leadsTo(`Delete the ${count(chosen.size, "chosen object")}…`, href), { label: "Choose none", run: () => select([]) }] : [])])]);
  useEffect(() => { if ((only !== "all" || text || sort) && rows.more) rows.loadMore(); }, [only, text, sort, rows.rows.length]);
  if (all.data && !kind) return html`<${Page} title=${resource}><p class="empty">The server does not serve ${resource}${group !== "core" ? "." + group : ""}. Its definition may have been deleted.</p><//>`;
  if (!kind) return html`<${Page} title=${resource}><${Problem} error=${all.error} /><${Loading} /><//>`;
  const narrowed = text || only !== "all", total = rows.left === undefined ? count(rows.rows.length, "object") + " and more" : count(rows.rows.length + rows.left, "object");
  const wanted = cols.split(",").filter(Boolean);
  const indexes = rows.columns.map((c, i) => (i === 0 || (wanted.length ? wanted.includes(c.name) : c.priority === 0) ? i : -1)).filter((i) => i >= 0);
  const head = (/** @type {string} */ name) => html`<th scope="col" aria-sort=${sort === name ? "ascending" : sort === "-" + name ? "descending" : undefined}><button type="button" class="head" onClick=${() => setSort(sort === name ? "-" + name : sort === "-" + name ? "" : name)}>${name}${sort === name ? " ▲" : sort === "-" + name ? " ▼" : ""}</button></th>`;
  const heads = [...(right ? [html`<th scope="col" class="check"><input type="checkbox" aria-label="Choose all that are shown" checked=${chosen.size > 0 && chosen.size >= Math.min(shown.length, mostChosen)} onChange=${(/** @type {any} */ e) => select(e.target.checked ? shown.slice(0, mostChosen).map(place) : [])} /></th>`] : []), ...(kind.namespaced && !namespace ? [head("Namespace")] : []), ...indexes.map((i) => head(rows.columns[i].name)), "State"];
  return html`<${Page} title=${kind.kind} sub=${rows.loading || (rows.error && !rows.rows.length) ? "" : `${narrowed ? `${shown.length.toLocaleString("en")} of ` : ""}${total}${namespace && kind.namespaced ? " in " + namespace : ""}${rows.more ? `; ${rows.rows.length.toLocaleString("en")} are loaded${rows.rows.length < mostRows ? ", more when you scroll" : ""}` : ""}`} actions=${html`
    <${Filter} label="Filter by name" />
    ${rows.columns.length > 1 && html`<details class="menu"><summary class="button">Columns</summary><div>${rows.columns.map((c, i) => i > 0 && html`<label><input type="checkbox" checked=${indexes.includes(i)} onChange=${() => setCols(rows.columns.filter((x, j) => j > 0 && (i === j) !== indexes.includes(j)).map((x) => x.name).join() || "-")} /> ${c.name}</label>`)}</div></details>`}
    ${offered && !history && html`<button type="button" id="earlier" onClick=${() => setHistory("yes")}>Earlier…</button>`}
    <input aria-label="Label selector" placeholder="Labels: app=web" value=${labels} onChange=${(/** @type {any} */ e) => setLabels(e.target.value.trim())} />
    <select aria-label="Show" value=${only} onChange=${(/** @type {any} */ e) => setOnly(e.target.value)}>
      <option value="all">All</option><option value="deleting">Deleting</option><option value="orphans">Without an owner</option><option value="dangling">Owner is missing</option></select>`}>
    ${(history || at) && html`<section class="panel"><header><h2>Earlier</h2><div class="actions"><button type="button" class="small" onClick=${() => choose({ history: "", at: "", since: "" })}>Back to now</button></div></header>
      ${mayLook === false ? html`<p class="notice">${noPast(kind)}</p>` : html`<${When} namespace=${namespace} />${at && html`<p class="notice">The table below is as it was then.</p>${since ? html`<${Changed} only=${kind} namespace=${namespace} at=${at} />` : html`<p class="actions"><button type="button" id="since" onClick=${() => setSince("yes")}>What has changed since?</button></p>`}`}`}</section>`}
    ${chosen.size > 0 && html`<p class="chosen" role="status">${count(chosen.size, "object")} chosen <a class="button danger" id="delete-many" href=${href}>Delete them…</a><button type="button" onClick=${() => select([])}>Choose none</button>${chosen.size > mostChosen && html`<span class="problem">A plan takes ${mostChosen} at most.</span>`}</p>`}
    <${Problem} error=${rows.error} />
    ${rows.loading && !rows.error && html`<${Loading} />`}
    ${!rows.loading && !rows.error && shown.length === 0 && html`<p class="empty">${rows.rows.length ? "Nothing matches the filter." : "There are none."}</p>`}
    ${shown.length > 0 && html`<${VirtualTable} label=${kind.kind} columns=${heads} rows=${shown} selected=${selected} onEnd=${rows.loadMore} row=${(/** @type {any} */ r, /** @type {number} */ i) => {
      const m = r.object.metadata;
      return html`<tr key=${m.uid} class=${i === selected ? "selected" : ""} aria-rowindex=${i + 1}>
        ${right && html`<td class="check"><input type="checkbox" tabindex=${i === selected || (selected < 0 && i === 0) ? 0 : -1} aria-label=${"Choose " + m.name} checked=${chosen.has(place(r))} onChange=${() => toggle(r)} /></td>`}
        ${kind.namespaced && !namespace && html`<td>${m.namespace}</td>`}
        ${indexes.map((c, j) => html`<td>${j === 0 ? html`<a href=${objectLink(kind, m.namespace, m.name) + then}>${String(r.cells[c])}</a>` : cell(r.cells[c], rows.columns[c])}</td>`)}
        <td>${m.deletionTimestamp ? html`<${State} state=${(m.finalizers || []).length ? "held" : "leaving"} text=${(m.finalizers || []).length ? "deleting, held" : "deleting"} />` : html`<${State} state="live" />`}</td></tr>`;
    }} />`}
    ${rows.rows.length >= mostRows && html`<p class="notice">The page shows the first ${mostRows.toLocaleString("en")}. Choose a namespace or labels to see others.</p>`}
  <//>`;
}

/** How the address names a row. @param {any} r */
const place = (r) => (r.object.metadata.namespace || "") + "/" + r.object.metadata.name.replace(/,/g, "%2C");

const order = new Intl.Collator("en", { numeric: true });

/** Rows by a column: "Age", or "-Age" for the other direction. @param {any[]} rows @param {string} by @param {any[]} columns */
export function sorted(rows, by, columns) {
  const name = by.replace(/^-/, ""), i = columns.findIndex((c) => c.name === name), down = by[0] === "-" ? -1 : 1;
  if (!by || (i < 0 && name !== "Namespace")) return rows;
  // What is younger has a later time: by age, the youngest is the first.
  const value = (/** @type {any} */ r) => (i < 0 ? r.object.metadata.namespace : name === "Age" || columns[i].type === "date" ? -new Date(name === "Age" ? r.object.metadata.creationTimestamp : r.cells[i]).getTime() : r.cells[i]);
  return rows.map((r) => [value(r), r]).sort(([a], [b]) => down * (typeof a === "number" && typeof b === "number" ? a - b : order.compare(String(a ?? ""), String(b ?? "")))).map(([, r]) => r);
}

/** @param {any} value @param {any} column */
function cell(value, column) {
  if (value === null || value === undefined) return "";
  if (column.type === "date") return html`<${Age} at=${value} suffix="" />`;
  return String(value);
}

/** @param {any} row @param {string} text @param {string} only @param {Set<string>} dangling */
function matches(row, text, only, dangling) {
  const m = row.object.metadata;
  if (text && !m.name.includes(text) && !(m.namespace || "").includes(text)) return false;
  if (only === "deleting") return !!m.deletionTimestamp;
  if (only === "orphans") return !(m.ownerReferences || []).length;
  if (only === "dangling") return dangling.has(m.uid);
  return true;
}

/** The rows whose owner does not exist. Each owner is asked for once.
 * @param {any[]} rows @param {boolean} on @returns {Set<string>} */
function useDangling(rows, on) {
  const [found, setFound] = useState(/** @type {Set<string>} */ (new Set()));
  const known = useRef(/** @type {Map<string, Promise<boolean>>} */ (new Map()));
  useEffect(() => {
    if (!on) return;
    const stop = new AbortController();
    const work = async () => {
      for (const r of rows) for (const o of r.object.metadata.ownerReferences || []) {
        if (stop.signal.aborted) return;
        let missing = known.current.get(o.uid);
        if (!missing) known.current.set(o.uid, missing = absent(o, r.object.metadata.namespace, stop.signal));
        if (await missing) setFound((f) => (f.has(r.object.metadata.uid) ? f : new Set(f).add(r.object.metadata.uid)));
      }
    };
    work().catch(() => {});
    return () => stop.abort();
  }, [rows, on]);
  return found;
}

/** @param {any} owner @param {string} namespace @param {AbortSignal} signal */
async function absent(owner, namespace, signal) {
  const kind = await kindOf(owner.apiVersion, owner.kind);
  if (!kind) return true;
  // A list, because the absence of an object is not an error.
  const [found] = (await get(pathOf(kind, namespace) + query({ fieldSelector: "metadata.name=" + owner.name }), { signal, accept: asHeads })).items || [];
  return !found || found.metadata.uid !== owner.uid;
}
