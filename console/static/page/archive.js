// @ts-check
// Archive: the cascades of the last day as units.

import { html, useState, useAnswer, useSelection, choice, Filter, Page, Problem, Loading, Age, Act, bytes, count } from "../view.js";
import { get, query, cascadesPath, deletionLink } from "../api.js";
import { stateOf } from "./deletion.js";

/** @param {{namespace: string}} props */
export function Archive({ namespace }) {
  const newest = useAnswer((signal) => get(cascadesPath(namespace) + query({ limit: 100 }), { signal }), 3000, [namespace]);
  const [older, setOlder] = useState(/** @type {{items: any[], more: string | undefined, of: string}} */ ({ items: [], more: undefined, of: "" }));
  const [text] = choice("q");
  const first = newest.data ? newest.data.items : [];
  const rest = older.of === namespace ? older : { items: [], more: undefined };
  const known = new Set(first.map((/** @type {any} */ c) => c.metadata.name));
  const all = [...first, ...rest.items.filter((c) => !known.has(c.metadata.name))];
  const more = rest.more !== undefined ? rest.more : newest.data && newest.data.metadata.continue;
  const some = all.filter((c) => c.status.removed > 0), items = some.filter((c) => [...Object.values(c.spec.root), c.spec.requestedBy].join("\n").includes(text));
  const selected = useSelection(items.map((c) => c.metadata.name), (i) => { location.hash = deletionLink(items[i]); });
  const load = async () => {
    const list = await get(cascadesPath(namespace) + query({ limit: 100, continue: more }));
    setOlder({ items: [...rest.items, ...list.items], more: list.metadata.continue || "", of: namespace });
  };
  return html`<${Page} title="Archive" sub=${newest.data ? `${text ? `${items.length.toLocaleString("en")} of ` : ""}${count(some.length, "deletion")}${more ? ", and older ones" : ""}, until they expire` : ""} actions=${html`<${Filter} label="Filter" />`}>
    <${Problem} error=${newest.error} />
    ${!newest.data && !newest.error && html`<${Loading} />`}
    ${newest.data && items.length === 0 && html`<p class="empty">${!text ? "The archive is empty: what is deleted stays here until it expires, and can be called back." : more ? `None of the newest ${some.length} matches the filter; there are older ones.` : "Nothing matches the filter."}</p>`}
    ${items.length > 0 && html`<table><thead><tr><th scope="col">When</th><th scope="col">What</th><th scope="col">Who asked</th><th scope="col" class="number">Objects</th><th scope="col" class="number">Size</th><th scope="col">State</th></tr></thead>
      <tbody>${items.map((c, i) => html`<tr key=${c.metadata.name} class=${i === selected ? "selected" : ""}><td><${Age} at=${c.spec.lastRemovedAt} /></td><td><a href=${deletionLink(c)}><span class="kind">${c.spec.root.kind}</span> ${c.spec.root.name}</a>${c.spec.root.namespace && html`<span class="faint"> in ${c.spec.root.namespace}</span>`}</td>
        <td>${c.spec.requestedBy}</td><td class="number">${c.status.removed.toLocaleString("en")}</td><td class="number">${bytes(c.status.bytes)}</td><td>${stateOf(c)}</td></tr>`)}</tbody></table>`}
    ${more && html`<p><${Act} id="more" run=${load}>Show older ones<//></p>`}
  <//>`;
}
