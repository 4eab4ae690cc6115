// @ts-check
// The ownership graph: a layered layout (pure), its picture, and the same as a table
// for people who do not see the picture.

import { html, State, choice, useState, useRef, useMemo, useLayoutEffect } from "./view.js";

/**
 * @typedef {{id: string, label: string, kind: string, state: any, note?: string, href?: string, many?: number, focus?: boolean, group?: string, fold?: string}} Node
 * group: the box that it may be folded into; fold: the box that it is
 * @typedef {{from: string, to: string, blocking?: boolean}} Edge
 * @typedef {{kind: string, state: any, note: string, count: number}} Total what the server counts of a group, more than it names
 * @typedef {Node & {x: number, y: number}} Placed
 */

const wide = 190, tall = 46, gapX = 56, gapY = 12;
/** A picture has at most so many boxes before it folds; an open box shows at most so many objects. */
const mostBoxes = 60, mostOpen = 40;
const signs = /** @type {any} */ ({ live: "●", leaving: "↘", held: "■", gone: "∅", back: "↩", stays: "◆" });

/** Fold nodes of one group into one box: when the server has counted more than it names, or when there are more than a person can
 * read. Without a group, that is by kind, state and distance from the object. An open box shows its first objects, and a box for the others.
 * @param {Node[]} nodes @param {Edge[]} edges @param {Map<string, Total> | undefined} totals @param {Set<string>} open */
export function fold(nodes, edges, totals, open) {
  if (!totals && nodes.length <= mostBoxes) return { nodes, edges, folded: false };
  /** @type {Map<string, string[]>} */
  const below = new Map();
  for (const e of edges) { const list = below.get(e.from); if (list) list.push(e.to); else below.set(e.from, [e.to]); }
  /** @type {Map<string, number>} */
  const depth = new Map();
  const focus = nodes.filter((n) => n.focus).map((n) => n.id);
  for (let d = 0, front = focus; front.length; d++) {
    for (const id of front) depth.set(id, d);
    front = [...new Set(front.flatMap((id) => below.get(id) || []))].filter((id) => !depth.has(id));
  }
  /** @type {Map<string, Node[]>} */
  const groups = new Map([...(totals || new Map()).keys()].map((key) => [key, []]));
  for (const n of nodes) {
    const key = n.focus || (totals && !n.group) ? n.id : n.group || [depth.get(n.id) ?? "", n.kind, n.state].join(" ");
    const group = groups.get(key);
    if (group) group.push(n); else groups.set(key, [n]);
  }
  const into = new Map();
  /** @type {Node[]} */
  const kept = [];
  for (const [key, group] of groups) {
    const total = totals && totals.get(key), all = total ? total.count : group.length;
    const shown = all === 1 && group.length === 1 ? group : open.has(key) ? group.slice(0, mostOpen) : [];
    for (const n of shown) { kept.push(n); into.set(n.id, n.id); }
    if (all === shown.length) continue;
    const { kind, state, note } = total || { ...group[0], note: undefined };
    kept.push({ id: "fold:" + key, label: (all - shown.length).toLocaleString("en") + (shown.length ? " more" : all === 1 ? " object" : " objects"), kind, state, note, many: all - shown.length, fold: key });
    for (const n of group) if (!into.has(n.id)) into.set(n.id, "fold:" + key);
  }
  /** @type {Map<string, Edge>} */
  const folded = new Map();
  for (const e of edges) {
    const from = into.get(e.from), to = into.get(e.to);
    if (!from || !to || from === to) continue;
    const known = folded.get(from + " " + to);
    folded.set(from + " " + to, { from, to, blocking: e.blocking || (known && known.blocking) });
  }
  // What the server counts and does not name belongs to the object all the same.
  const owned = new Set([...folded.values()].map((e) => e.to));
  if (totals && focus[0]) for (const n of kept) if (n.many && !owned.has(n.id)) folded.set(focus[0] + " " + n.id, { from: focus[0], to: n.id });
  return { nodes: kept, edges: [...folded.values()], folded: true };
}

/** The nodes in some states, with what leads to them from the object. @param {Node[]} nodes @param {Edge[]} edges @param {Set<string>} states */
export function inStates(nodes, edges, states) {
  if (!states.size) return { nodes, edges };
  const keep = new Set(nodes.filter((n) => n.focus || states.has(n.state)).map((n) => n.id));
  /** @type {Map<string, string[]>} */
  const above = new Map();
  for (const e of edges) { const list = above.get(e.to); if (list) list.push(e.from); else above.set(e.to, [e.from]); }
  for (const id of keep) for (const owner of above.get(id) || []) keep.add(owner); // a set grows while it is visited
  return { nodes: nodes.filter((n) => keep.has(n.id)), edges: edges.filter((e) => keep.has(e.from) && keep.has(e.to)) };
}

/** Place nodes in layers: owners left of what they own. Within a layer a node stands
 * near the middle of its owners. Circles are cut where they close.
 * @param {Node[]} nodes @param {Edge[]} edges @returns {{nodes: Placed[], width: number, height: number}} */
export function layout(nodes, edges) {
  const byId = new Map(nodes.map((n) => [n.id, n]));
  /** @type {Map<string, string[]>} */
  const children = new Map(nodes.map((n) => [n.id, []]));
  /** @type {Map<string, string[]>} */
  const parents = new Map(nodes.map((n) => [n.id, []]));
  for (const e of edges) {
    if (!byId.has(e.from) || !byId.has(e.to)) continue;
    /** @type {string[]} */ (children.get(e.from)).push(e.to);
    /** @type {string[]} */ (parents.get(e.to)).push(e.from);
  }
  /** @type {Map<string, number>} */
  const layer = new Map();
  const open = new Set();
  /** @param {string} id @returns {number} */
  const depth = (id) => {
    const known = layer.get(id);
    if (known !== undefined) return known;
    if (open.has(id)) return -1; // a circle
    open.add(id);
    let d = 0;
    for (const p of parents.get(id) || []) d = Math.max(d, depth(p) + 1);
    open.delete(id);
    layer.set(id, d);
    return d;
  };
  for (const n of nodes) depth(n.id);
  /** @type {Node[][]} */
  const layers = [];
  for (const n of nodes) (layers[/** @type {number} */ (layer.get(n.id))] ||= []).push(n);
  const place = new Map();
  /** @type {Placed[]} */
  const placed = [];
  const most = Math.max(1, ...layers.map((l) => (l || []).length));
  layers.forEach((nodes, i) => {
    const middle = (/** @type {Node} */ n) => {
      const ps = (parents.get(n.id) || []).map((p) => place.get(p)).filter((y) => y !== undefined);
      return ps.length ? ps.reduce((a, b) => a + b, 0) / ps.length : 0;
    };
    const ordered = [...nodes].sort((a, b) => middle(a) - middle(b) || (a.kind + a.label).localeCompare(b.kind + b.label));
    const top = ((most - ordered.length) * (tall + gapY)) / 2;
    ordered.forEach((n, j) => {
      const y = top + j * (tall + gapY);
      place.set(n.id, y);
      placed.push({ ...n, x: i * (wide + gapX), y });
    });
  });
  return { nodes: placed, width: layers.length * (wide + gapX) - gapX, height: most * (tall + gapY) - gapY };
}

/** The beginning and the end of a name: what belongs together differs at the end. @param {string} text @param {number} most */
function shorten(text, most) { return text.length > most ? text.slice(0, most - 9) + "…" + text.slice(-8) : text; }

/** @param {{nodes: Node[], edges: Edge[], totals?: Map<string, Total>, label: string}} props */
export function Graph({ nodes, edges, totals, label }) {
  const [view, setView] = choice("graph");
  const [opened, setOpened] = choice("open"), [only, setOnly] = choice("states");
  const [scale, setScale] = useState(1);
  const [at, setAt] = useState({ left: 0, top: 0, width: 1, height: 1 });
  const canvas = useRef(/** @type {any} */ (null));
  const asTable = view === "table";
  const open = new Set(opened.split("~").filter(Boolean)), states = new Set(only.split(",").filter(Boolean));
  const flip = (/** @type {Set<string>} */ set, /** @type {string} */ key) => { if (!set.delete(key)) set.add(key); return set; };
  const toggle = (/** @type {string} */ key) => setOpened([...flip(open, key)].join("~"));
  // Numbers of the states are of all objects, not of the boxes.
  const counts = new Map();
  for (const n of nodes) if (!totals || !n.group) counts.set(n.state, (counts.get(n.state) || 0) + 1);
  for (const t of totals ? totals.values() : []) counts.set(t.state, (counts.get(t.state) || 0) + t.count);
  const { nodes: shown, edges: drawn, folded, placed, width, height } = useMemo(() => {
    const some = inStates(nodes, edges, states);
    const result = fold(some.nodes, some.edges, totals && states.size ? new Map([...totals].filter(([, t]) => states.has(t.state))) : totals, open);
    const { nodes: placed, ...size } = layout(result.nodes, result.edges);
    return { ...result, placed, ...size };
  }, [nodes, edges, totals, opened, only]);
  const where = new Map(placed.map((n) => [n.id, n]));
  const focus = placed.find((n) => n.focus);
  const look = () => { const c = canvas.current; if (c) setAt({ left: c.scrollLeft, top: c.scrollTop, width: c.clientWidth, height: c.clientHeight }); };
  const fit = () => { const c = canvas.current; setScale(Math.max(0.1, Math.min(1, (c.clientWidth - 1) / (width + 4), (parseFloat(getComputedStyle(c).maxHeight) - 8) / (height + 4)))); };
  const zoom = (/** @type {number} */ by) => setScale(Math.max(0.1, Math.min(2, scale * by)));
  // The object itself is in view at first.
  useLayoutEffect(() => {
    const c = canvas.current;
    if (c && focus) { c.scrollTop = (focus.y + tall / 2) * scale - c.clientHeight / 2; c.scrollLeft = (focus.x + wide) * scale - c.clientWidth; }
    look();
  }, [!!focus, asTable, scale]);
  useLayoutEffect(look, [width, height]);
  const keys = (/** @type {KeyboardEvent} */ e) => {
    if (e.key === "+") zoom(1.25); else if (e.key === "-") zoom(0.8); else if (e.key === "0") setScale(1); else if (e.key === "f") fit();
  };
  const wheel = (/** @type {WheelEvent} */ e) => { if (e.ctrlKey) { e.preventDefault(); zoom(e.deltaY < 0 ? 1.1 : 0.9); } };
  const small = at.width >= (width + 4) * scale - 1 && at.height >= (height + 4) * scale - 1;
  return html`<div class="graph">
    <div class="tools"><span class="actions" role="group" aria-label="Show states">${[...counts].map(([state, n]) => html`<button type="button" class="small" aria-pressed=${states.has(state)} onClick=${() => setOnly([...flip(states, state)].join())}><${State} state=${state} text=${`${n.toLocaleString("en")} ${state}`} /></button>`)}</span>
      ${!asTable && html`<span class="actions" role="group" aria-label="Zoom"><button type="button" class="small" aria-label="Smaller" onClick=${() => zoom(0.8)}>−</button><button type="button" class="small" aria-label="Larger" onClick=${() => zoom(1.25)}>+</button><button type="button" class="small" onClick=${fit}>Fit</button><button type="button" class="small" aria-label=${`${Math.round(scale * 100)} %: back to the original size`} onClick=${() => setScale(1)}>${Math.round(scale * 100)} %</button></span>`}
      ${open.size > 0 && html`<button type="button" class="small" onClick=${() => setOpened("")}>Close all boxes</button>`}
      <button type="button" class="small" aria-pressed=${asTable} onClick=${() => setView(asTable ? "" : "table")}>${asTable ? "As a picture" : "As a table"}</button></div>
    ${asTable ? html`<${GraphTable} nodes=${shown} edges=${drawn} label=${label} toggle=${toggle} open=${open} />` : html`
    <div class="canvas" ref=${canvas} tabindex="0" role="region" aria-label=${label} onScroll=${look} onKeyDown=${keys} onWheel=${wheel}>
      <svg viewBox="-2 -2 ${width + 4} ${height + 4}" width=${(width + 4) * scale} height=${(height + 4) * scale} aria-hidden="true">
        ${drawn.map((e) => {
          const a = where.get(e.from), b = where.get(e.to);
          if (!a || !b) return null;
          const x1 = a.x + wide, y1 = a.y + tall / 2, x2 = b.x, y2 = b.y + tall / 2, m = (x1 + x2) / 2;
          return html`<path key=${e.from + e.to} class=${"edge" + (e.blocking ? " blocking" : "")} d=${`M${x1} ${y1}C${m} ${y1} ${m} ${y2} ${x2} ${y2}`}><title>${e.blocking ? "blocks its owner's deletion" : "is owned"}</title></path>`;
        })}
        ${placed.map((n) => html`<${Box} key=${n.id} node=${n} toggle=${toggle} />`)}
      </svg></div>
    ${!small && html`<${Minimap} nodes=${placed} width=${width} height=${height} scale=${scale} at=${at} go=${(/** @type {number} */ x, /** @type {number} */ y) => { const c = canvas.current; c.scrollLeft = x * scale - c.clientWidth / 2; c.scrollTop = y * scale - c.clientHeight / 2; }} />`}
    <div class="hidden"><${GraphTable} nodes=${shown} edges=${drawn} label=${label} plain /></div>`}
    ${folded && html`<p class="faint">A box stands for the objects of one kind ${totals ? "and action" : "in one state, equally far from the object"}. Click it, or Open in the table, to see them.</p>`}
  </div>`;
}

/** All of a graph that is larger than its window, and which part the window shows.
 * @param {{nodes: Placed[], width: number, height: number, scale: number, at: {left: number, top: number, width: number, height: number}, go: (x: number, y: number) => void}} props */
function Minimap({ nodes, width, height, scale, at, go }) {
  const size = Math.min(150 / width, 100 / height);
  const move = (/** @type {any} */ e) => { if (e.buttons || e.type === "click") { const r = e.currentTarget.getBoundingClientRect(); go((e.clientX - r.left) / size, (e.clientY - r.top) / size); } };
  return html`<svg class="minimap" width=${Math.max(8, width * size)} height=${Math.max(8, height * size)} viewBox="0 0 ${width} ${height}" aria-hidden="true" onClick=${move} onPointerMove=${move}>
    ${nodes.map((n) => html`<rect key=${n.id} class=${n.state} x=${n.x} y=${n.y} width=${wide} height=${tall} />`)}
    <rect class="window" x=${at.left / scale} y=${at.top / scale} width=${Math.min(width, at.width / scale)} height=${Math.min(height, at.height / scale)} /></svg>`;
}

/** @param {{node: Placed, toggle: (key: string) => void}} props */
function Box({ node: n, toggle }) {
  const box = html`<g class=${"node " + n.state + (n.focus ? " focus" : "") + (n.many ? " many" : "")} style=${{ transform: `translate(${n.x}px, ${n.y}px)` }} onClick=${n.many && n.fold ? () => toggle(/** @type {string} */ (n.fold)) : undefined}>
    ${n.many && html`<rect x="4" y="4" width=${wide} height=${tall} rx="5" class="behind" />`}
    <rect width=${wide} height=${tall} rx="5" /><rect width="4" height=${tall} rx="2" class="edge-mark" />
    <text x="12" y="17" class="small">${signs[n.state]} ${shorten(n.kind, 25)}</text><text x="12" y="34">${shorten(n.label, 22)}</text>
    <title>${n.kind} ${n.label}${n.note ? ": " + n.note : ""}</title></g>`;
  return n.href ? html`<a href=${n.href} tabindex="-1">${box}</a>` : box;
}

/** plain: without links, which would be invisible stops of the Tab key.
 * @param {{nodes: Node[], edges: Edge[], label: string, plain?: boolean, toggle?: (key: string) => void, open?: Set<string>}} props */
function GraphTable({ nodes, edges, label, plain, toggle, open }) {
  const names = new Map(nodes.map((n) => [n.id, n.kind + " " + n.label]));
  /** @param {string} id */
  const owners = (id) => edges.filter((e) => e.to === id).map((e) => names.get(e.from) + (e.blocking ? " (blocks it)" : "")).join(", ");
  return html`<table><caption class="hidden">${label}</caption><thead><tr><th scope="col">Object</th><th scope="col">State</th><th scope="col">Owned by</th><th scope="col">Note</th></tr></thead>
    <tbody>${nodes.map((n) => html`<tr key=${n.id}><td>${n.href && !plain ? html`<a href=${n.href}>${n.kind} ${n.label}</a>` : n.kind + " " + n.label}${n.many && n.fold && toggle && open && html` <button type="button" class="small" aria-expanded=${open.has(n.fold)} aria-label=${`${open.has(n.fold) ? "Close" : "Open"}: ${n.kind}, ${n.label}`} onClick=${() => toggle(/** @type {string} */ (n.fold))}>${open.has(n.fold) ? "Close" : "Open"}</button>`}</td><td><${State} state=${n.state} /></td><td>${owners(n.id)}</td><td>${n.note || ""}</td></tr>`)}</tbody></table>`;
}
