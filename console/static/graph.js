// @ts-check
// The ownership graph: a layered layout (pure), its picture, and the same as a table
// for people who do not see the picture.

import { html, State, choice, useRef, useLayoutEffect } from "./view.js";

/**
 * @typedef {{id: string, label: string, kind: string, state: any, note?: string, href?: string, many?: number, focus?: boolean}} Node
 * @typedef {{from: string, to: string, blocking?: boolean}} Edge
 * @typedef {Node & {x: number, y: number}} Placed
 */

const wide = 190, tall = 46, gapX = 56, gapY = 12;

/** Fold nodes of one kind, state and distance from the object into one box, when there are more than a person can read.
 * @param {Node[]} nodes @param {Edge[]} edges @param {number} most */
export function fold(nodes, edges, most) {
  if (nodes.length <= most) return { nodes, edges };
  /** @type {Map<string, string[]>} */
  const below = new Map();
  for (const e of edges) below.set(e.from, [...(below.get(e.from) || []), e.to]);
  /** @type {Map<string, number>} */
  const depth = new Map();
  let front = nodes.filter((n) => n.focus).map((n) => n.id);
  for (let d = 0; front.length; d++) {
    for (const id of front) depth.set(id, d);
    front = [...new Set(front.flatMap((id) => below.get(id) || []))].filter((id) => !depth.has(id));
  }
  /** @type {Map<string, Node[]>} */
  const groups = new Map();
  for (const n of nodes) {
    const key = n.focus ? n.id : [depth.get(n.id) ?? "", n.kind, n.state].join("\n");
    const group = groups.get(key);
    if (group) group.push(n); else groups.set(key, [n]);
  }
  const into = new Map();
  const kept = [...groups].map(([key, group]) => {
    const box = group.length === 1 ? group[0] : { id: "fold:" + key, label: group.length.toLocaleString("en") + " objects", kind: group[0].kind, state: group[0].state, many: group.length };
    for (const n of group) into.set(n.id, box.id);
    return box;
  });
  /** @type {Map<string, Edge>} */
  const folded = new Map();
  for (const e of edges) {
    const from = into.get(e.from), to = into.get(e.to);
    if (!from || !to || from === to) continue;
    const known = folded.get(from + "\n" + to);
    folded.set(from + "\n" + to, { from, to, blocking: e.blocking || (known && known.blocking) });
  }
  return { nodes: kept, edges: [...folded.values()] };
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

/** @param {string} text @param {number} most */
function shorten(text, most) { return text.length > most ? text.slice(0, most - 1) + "…" : text; }

/** @param {{nodes: Node[], edges: Edge[], label: string}} props */
export function Graph({ nodes, edges, label }) {
  const [view, setView] = choice("graph");
  const asTable = view === "table";
  const canvas = useRef(/** @type {any} */ (null));
  const folded = fold(nodes, edges, 60);
  const { nodes: placed, width, height } = layout(folded.nodes, folded.edges);
  const at = new Map(placed.map((n) => [n.id, n]));
  const focus = placed.find((n) => n.focus);
  // The object itself is in view at first.
  useLayoutEffect(() => {
    if (canvas.current && focus) { canvas.current.scrollTop = focus.y - canvas.current.clientHeight / 2; canvas.current.scrollLeft = focus.x + wide - canvas.current.clientWidth; }
  }, [!!focus, asTable]);
  return html`<div class="graph">
    <div class="switch"><button type="button" class="small" aria-pressed=${asTable} onClick=${() => setView(asTable ? "" : "table")}>${asTable ? "As a picture" : "As a table"}</button></div>
    ${asTable ? html`<${GraphTable} nodes=${folded.nodes} edges=${folded.edges} label=${label} />` : html`
    <div class="canvas" ref=${canvas} tabindex="0" role="region" aria-label=${label}>
      <svg viewBox="-2 -2 ${width + 4} ${height + 4}" width=${width + 4} height=${height + 4} aria-hidden="true">
        ${folded.edges.map((e) => {
          const a = at.get(e.from), b = at.get(e.to);
          if (!a || !b) return null;
          const x1 = a.x + wide, y1 = a.y + tall / 2, x2 = b.x, y2 = b.y + tall / 2, m = (x1 + x2) / 2;
          return html`<path key=${e.from + e.to} class=${"edge" + (e.blocking ? " blocking" : "")} d=${`M${x1} ${y1}C${m} ${y1} ${m} ${y2} ${x2} ${y2}`}><title>${e.blocking ? "blocks its owner's deletion" : "is owned"}</title></path>`;
        })}
        ${placed.map((n) => html`<${Box} key=${n.id} node=${n} />`)}
      </svg></div>
    <div class="hidden"><${GraphTable} nodes=${folded.nodes} edges=${folded.edges} label=${label} plain /></div>`}
    ${folded.nodes.length < nodes.length && html`<p class="faint">Folded by kind, state and distance.</p>`}
  </div>`;
}

/** @param {{node: Placed}} props */
function Box({ node: n }) {
  const sign = /** @type {any} */ ({ live: "●", leaving: "↘", held: "■", gone: "∅", back: "↩", stays: "◆" })[n.state];
  const box = html`<g class=${"node " + n.state + (n.focus ? " focus" : "")} style=${{ transform: `translate(${n.x}px, ${n.y}px)` }}>
    ${n.many && html`<rect x="4" y="4" width=${wide} height=${tall} rx="5" class="behind" />`}
    <rect width=${wide} height=${tall} rx="5" /><rect width="4" height=${tall} rx="2" class="edge-mark" />
    <text x="12" y="17" class="small">${sign} ${shorten(n.kind, 26)}</text><text x="12" y="34">${shorten(n.label, 24)}</text>
    <title>${n.kind} ${n.label}${n.note ? ": " + n.note : ""}</title></g>`;
  return n.href ? html`<a href=${n.href} tabindex="-1">${box}</a>` : box;
}

/** plain: without links, which would be invisible stops of the Tab key.
 * @param {{nodes: Node[], edges: Edge[], label: string, plain?: boolean}} props */
function GraphTable({ nodes, edges, label, plain }) {
  const names = new Map(nodes.map((n) => [n.id, n.kind + " " + n.label]));
  /** @param {string} id */
  const owners = (id) => edges.filter((e) => e.to === id).map((e) => names.get(e.from) + (e.blocking ? " (blocks it)" : "")).join(", ");
  return html`<table><caption class="hidden">${label}</caption><thead><tr><th scope="col">Object</th><th scope="col">State</th><th scope="col">Owned by</th><th scope="col">Note</th></tr></thead>
    <tbody>${nodes.map((n) => html`<tr><td>${n.href && !plain ? html`<a href=${n.href}>${n.kind} ${n.label}</a>` : n.kind + " " + n.label}</td><td><${State} state=${n.state} /></td><td>${owners(n.id)}</td><td>${n.note || ""}</td></tr>`)}</tbody></table>`;
}
