// @ts-check
// Registry: repositories, tags, layers, referrers; delete and undelete; collection.

import { html, useState, useMemo, useAnswer, useRight, useActions, useSelection, More, choice, choose, Filter, Page, Panel, Problem, Loading, Age, State, Act, Dialog, Command, Copy, VirtualTable, bytes, count, duration } from "../view.js";
import { age, get, list as listOf, send, post, query, pathOf, may, mayVisit, forEach, session } from "../api.js";
import { mostChosen } from "./many.js";

const manifests = ["application/vnd.oci.image.index.v1+json", "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.docker.distribution.manifest.v2+json"].join(", ");
/** The page shows at most so many tags of a repository. */
const mostTags = 10000;
const order = new Intl.Collator("en", { numeric: true });

/** A duration of the server, 24h0m0s, without what is zero. @param {string} d */
const after = (d) => d.replace(/([hm])0s$/, "$1").replace(/h0m$/, "h");

/** What a client pulls. @param {string} path @param {string} tag */
const pullOf = (path, tag) => `docker pull ${session.registry.replace(/^(0\.0\.0\.0|\[::\])(?=:)/, location.hostname)}/${path}:${tag}`;

/** @param {{namespace: string}} props */
export function Registry({ namespace }) {
  const kind = { group: "registry.exeunt.dev", version: "v1", resource: "repositories", namespaced: true };
  const list = useAnswer((signal) => listOf(pathOf(kind, namespace), { signal }), age, [namespace]);
  const mayAsk = useRight(() => mayVisit("get", "/exeunt/registry/gc/dry-run"), []);
  const [text] = choice("q");
  const items = (list.data ? list.data.items : []).filter((/** @type {any} */ r) => r.spec.path.includes(text));
  const sum = (/** @type {string} */ f) => items.reduce((/** @type {number} */ n, /** @type {any} */ r) => n + ((r.status && r.status[f]) || 0), 0);
  return html`<${Page} title="Registry" sub=${list.data ? `${count(items.length, "repository", "repositories")}${list.data.more ? " shown" : ""}, ${bytes(sum("size"))}, of which collection will free ${bytes(sum("reclaimable"))}` : ""}
    actions=${html`<${Filter} label="Filter repositories" short="Filter" />`}>
    <${Problem} error=${list.error} />
    ${!list.data && !list.error && html`<${Loading} />`}
    ${list.data && items.length === 0 && html`<p class="empty">There are no repositories. The first push makes one.</p>`}
    ${items.length > 0 && html`<${Panel} title="Repositories" wide><table><thead><tr><th scope="col">Repository</th><th scope="col" class="number">Tags</th><th scope="col" class="number">Manifests</th><th scope="col" class="number">Size</th><th scope="col" class="number">To be freed</th><th scope="col">Last push</th><th scope="col">State</th></tr></thead>
      <tbody>${items.map((/** @type {any} */ r) => { const s = r.status || {}; return html`<tr key=${r.metadata.uid}><td><a href=${"#/registry/" + r.spec.path}>${r.spec.path}</a></td><td class="number">${s.tags || 0}</td><td class="number">${s.manifests || 0}</td>
        <td class="number">${bytes(s.size || 0)}${r.spec.quota ? ` of ${r.spec.quota}` : ""}</td><td class="number">${bytes(s.reclaimable || 0)}</td><td><${Age} at=${s.lastPush} /></td><td>${r.metadata.deletionTimestamp ? html`<${State} state="leaving" />` : r.spec.hold ? html`<${State} state="stays" text="on hold" />` : html`<${State} state="live" />`}</td></tr>`; })}</tbody></table><//>`}
    <${More} of=${list.data} />
    ${mayAsk && html`<${Collection} />`}
  <//>`;
}

/** What the collection would take, and when. */
function Collection() {
  const [asked, setAsked] = useState(0);
  const queues = useAnswer((signal) => get("/exeunt/registry/gc", { signal }), 5000, []).data;
  const due = queues && [queues.manifests, queues.blobs].map((q) => q.due).filter(Boolean).sort()[0];
  const plan = useAnswer((signal) => (asked ? get("/exeunt/registry/gc/dry-run", { signal }) : Promise.resolve(null)), 0, [asked]);
  return html`<${Panel} title="Collection" wide actions=${html`<button type="button" onClick=${() => setAsked(asked + 1)}>What would go now?</button>`}>
    <${Problem} error=${plan.error} />
    ${plan.data ? html`<p><${State} state="leaving" text=${`${count((plan.data.manifests || []).length, "manifest")}, ${count((plan.data.blobs || []).length, "blob")} and ${count(plan.data.uploads, "abandoned upload")}`} />: ${bytes(plan.data.bytes)}. Nothing has been removed.</p>
      ${(plan.data.manifests || []).length > 0 && html`<table><thead><tr><th scope="col">Repository</th><th scope="col">Manifest</th></tr></thead><tbody>${plan.data.manifests.slice(0, 100).map((/** @type {any} */ m) => html`<tr><td>${m.repository}</td><td><code>${m.digest}</code></td></tr>`)}</tbody></table>`}`
      : html`<p class="faint">Untagged manifests and unused layers go by themselves. A dry run shows what would go if all of it were reviewed now.</p>`}
    ${queues && html`<p id="due">${count(queues.manifests.depth, "manifest")} and ${count(queues.blobs.depth, "blob")} are queued for review${due ? html`, the first ${new Date(due).getTime() <= Date.now() ? "now" : html`<${Age} at=${due} />`}` : ""}. A tag that is deleted has ${after(queues.reviewAfter.tag_delete)} before its review. ${bytes(queues.unlinkBytes)} wait to be removed; ${bytes(queues.givenBackBytes)} were given back today (UTC).</p>`}
  <//>`;
}

/** @param {any} body */
const layersOf = (body) => [...(body.config ? [{ ...body.config, what: "config" }] : []), ...(body.layers || []).map((/** @type {any} */ l) => ({ ...l, what: "layer" }))];

/** The columns of the tags: name, and the value that they are sorted by. @type {[string, (t: any) => any][]} */
const columns = [["Tag", (t) => t.name], ["Size", (t) => t.size], ["Pushed", (t) => Date.parse(t.pushedAt)], ["Pulled", (t) => (t.pulledAt ? Date.parse(t.pulledAt) : 0)]];

/** @param {any[]} tags @param {string} by */
function sorted(tags, by) {
  const down = by[0] === "-" ? -1 : 1, value = (columns.find(([name]) => name === by.replace(/^-/, "")) || columns[0])[1];
  return [...tags].sort((a, b) => { const x = value(a), y = value(b); return down * (typeof x === "number" ? x - y : order.compare(x, y)) || order.compare(a.name, b.name); });
}

/** @param {{path: string}} props */
export function RepositoryPage({ path }) {
  const [text] = choice("q"), [sort, setSort] = choice("sort"), [sel] = choice("sel"), [tag, setTag] = choice("tag");
  const [deleting, setDeleting] = useState(/** @type {string[] | null} */ (null));
  // null: there is no such repository, or none any more. It is not asked for again.
  const list = useAnswer((signal) => get(`/v2/${path}/tags/list?details=true&n=${mostTags}`, { signal }).then((l) => l.details, (err) => { if (err.code !== 404) throw err; return null; }), (d) => (d === null ? 0 : d && d.length > 500 ? 30000 : 5000), [path]);
  // shop/web is Repository web in shop, web is in default; the names of deeper paths end in a hash.
  const parts = path.split("/");
  const right = useRight(() => may("delete", "registry.exeunt.dev", "repositories", parts.length > 1 ? parts[0] : "default", parts.length > 2 ? "" : parts[parts.length - 1]), [path]);
  const mayUndelete = useRight(() => mayVisit("post", "/exeunt/registry/undelete"), []);
  const deleted = useAnswer(async (signal) => (list.data ? get("/exeunt/registry/deleted" + query({ repository: path }), { signal }) : []), 5000, [path, !!list.data]);
  const again = () => { list.again(); deleted.again(); };
  const tags = list.data || [], gone = deleted.data || [];
  const shown = useMemo(() => sorted(tags.filter((/** @type {any} */ t) => t.name.includes(text)), sort), [list.data, text, sort]);
  const chosen = useMemo(() => new Set(sel.split(",").filter((t) => tags.some((/** @type {any} */ x) => x.name === t))), [sel, list.data]);
  const select = (/** @type {Iterable<string>} */ names) => choose({ sel: [...names].join() });
  const toggle = (/** @type {string} */ name) => { const next = new Set(chosen); if (!next.delete(name)) next.add(name); select(next); };
  const selected = useSelection(shown.map((/** @type {any} */ t) => t.name), (i) => setTag(shown[i].name), right ? (i) => toggle(shown[i].name) : undefined);
  const open = tags.find((/** @type {any} */ t) => t.name === tag);
  useActions(!right || !chosen.size ? [] : [{ label: `Delete the ${count(chosen.size, "chosen tag")}…`, run: () => setDeleting([...chosen]) }, { label: "Choose none", run: () => select([]) }]);
  const head = (/** @type {string} */ name) => html`<th scope="col" class=${name === "Size" ? "number" : ""} aria-sort=${(sort || "Tag") === name ? "ascending" : sort === "-" + name ? "descending" : undefined}>
    <button type="button" class="head" onClick=${() => setSort((sort || "Tag") === name ? "-" + name : name === "Tag" ? "" : sort === "-" + name ? "" : name)}>${name}${(sort || "Tag") === name ? " ▲" : sort === "-" + name ? " ▼" : ""}</button></th>`;
  const all = shown.slice(0, mostChosen).map((/** @type {any} */ t) => t.name);
  const heads = [...(right ? [html`<th scope="col" class="check"><input type="checkbox" aria-label="Choose all that are shown" checked=${chosen.size > 0 && chosen.size >= all.length} onChange=${(/** @type {any} */ e) => select(e.target.checked ? all : [])} /></th>`] : []),
    ...columns.map(([name]) => head(name)), "Image", html`<th scope="col"><span class="hidden">Actions</span></th>`];
  return html`<${Page} title=${path} sub=${list.data ? `${count(shown.length, "tag")}${shown.length < tags.length ? ` of ${tags.length.toLocaleString("en")}` : ""}${tags.length >= mostTags ? ", and more" : ""}` : ""} actions=${html`<${Filter} label="Filter tags" /><a class="button" href="#/registry">All repositories</a>`}>
    ${chosen.size > 0 && right && html`<p class="chosen" role="status">${count(chosen.size, "tag")} chosen <button type="button" class="danger" id="delete-many" disabled=${chosen.size > mostChosen} onClick=${() => setDeleting([...chosen])}>Delete them…</button><button type="button" onClick=${() => select([])}>Choose none</button>${chosen.size > mostChosen && html`<span class="problem">A plan takes ${mostChosen} at most.</span>`}</p>`}
    <${Problem} error=${list.error} />
    ${list.data === undefined && !list.error && html`<${Loading} />`}
    ${list.data === null && html`<p class="empty">There is no repository ${path}. If it was deleted, its deletion is in the <a href="#/archive">archive</a>.</p>`}
    ${list.data && shown.length === 0 && html`<p class="empty">${text ? "No tag matches the filter." : "It has no tags."}</p>`}
    ${shown.length > 0 && html`<${VirtualTable} label=${"Tags of " + path} columns=${heads} rows=${shown} selected=${selected} row=${(/** @type {any} */ t, /** @type {number} */ i) => html`<tr key=${t.name} class=${i === selected || t.name === tag ? "selected" : ""} aria-rowindex=${i + 1} data-tag=${t.name}>
      ${right && html`<td class="check"><input type="checkbox" tabindex=${i === selected || (selected < 0 && i === 0) ? 0 : -1} aria-label=${"Choose " + t.name} checked=${chosen.has(t.name)} onChange=${() => toggle(t.name)} /></td>`}
      <td><button type="button" class="link" aria-expanded=${t.name === tag} onClick=${() => setTag(t.name === tag ? "" : t.name)}>${t.name}</button></td><td class="number">${bytes(t.size)}</td><td><${Age} at=${t.pushedAt} /></td><td>${t.pulledAt ? html`<${Age} at=${t.pulledAt} />` : html`<span class="faint" title="Not since the server records it">not seen</span>`}</td>
      <td><code title=${t.digest}>${t.digest.slice(0, 19)}</code>${t.manifests > 0 && html` <span class="faint">${count(t.manifests, "platform")}</span>`}</td><td><${Copy} text=${pullOf(path, t.name)} label=${": " + pullOf(path, t.name)} /></td></tr>`} />`}
    ${tag && list.data && !open && html`<p class="empty">There is no tag ${tag}.</p>`}
    ${open && html`<${Image} key=${open.digest + open.name} path=${path} tag=${open} actions=${html`${right && html`<button type="button" class="small danger" onClick=${() => setDeleting([open.name])}>Delete tag…</button>`}<button type="button" class="small" onClick=${() => setTag("")}>Close</button>`} />`}
    ${deleting && html`<${DeleteTags} path=${path} tags=${deleting} onClose=${() => setDeleting(null)} done=${() => { setDeleting(null); select([]); setTag(""); again(); }} />`}
    ${gone.length > 0 && html`<${Panel} title="Deleted, and still there" wide><table><thead><tr><th scope="col">Tag</th><th scope="col">Digest</th><th scope="col">Deleted</th><th scope="col">Stays until</th><th scope="col"><span class="hidden">Actions</span></th></tr></thead>
      <tbody>${gone.map((/** @type {any} */ d) => html`<tr><td>${d.tag || html`<span class="faint">none</span>`}</td><td><code title=${d.digest}>${d.digest.slice(0, 19)}</code></td><td><${Age} at=${d.deletedAt} /></td><td><${Age} at=${d.until} /></td>
        <td>${mayUndelete && html`<${Act} kind="small" run=${async () => { await post("/exeunt/registry/undelete" + query({ repository: path, tag: d.tag, digest: d.digest }), undefined); again(); }}>Undelete ${d.tag}<//>`}</td></tr>`)}</tbody></table><//>`}
  <//>`;
}

/** What a delete of tags frees, in all repositories, and what of it an image would lose. @param {string} path @param {string[]} tags @param {AbortSignal} signal */
const freed = (path, tags, signal) => get("/exeunt/registry/gc/dry-run?" + new URLSearchParams([["repository", path], ...tags.map((t) => ["tag", t])]), { signal });

/** One image: its platforms, its layers with their sizes, and what is attached. @param {{path: string, tag: any, actions: any}} props */
function Image({ path, tag, actions }) {
  const found = useAnswer(async (signal) => {
    const read = (/** @type {string} */ digest) => get(`/v2/${path}/manifests/${digest}`, { signal, accept: manifests });
    const [body, attached] = await Promise.all([read(tag.digest), get(`/v2/${path}/referrers/${tag.digest}`, { signal })]);
    const platforms = body.manifests ? await Promise.all(body.manifests.slice(0, 20).map(async (/** @type {any} */ m) => (
      { name: m.platform ? [m.platform.os, m.platform.architecture, m.platform.variant].filter(Boolean).join("/") : m.digest.slice(0, 19), layers: layersOf(await read(m.digest)) }))) : [{ name: "", layers: layersOf(body) }];
    return { platforms, attached: attached.manifests || [], more: body.manifests ? body.manifests.length - platforms.length : 0 };
  }, 0, [path, tag.digest]);
  // Who may ask the collector learns which layers nothing else uses.
  const plan = useAnswer(async (signal) => (await mayVisit("get", "/exeunt/registry/gc/dry-run") ? freed(path, [tag.name], signal) : null), 0, [path, tag.name, tag.digest]).data;
  const own = plan && new Set(plan.blobs.map((/** @type {any} */ b) => b.digest));
  const image = found.data;
  return html`<${Panel} title=${path + ":" + tag.name} wide actions=${actions}><${Problem} error=${found.error} />
    <${Command} text=${pullOf(path, tag.name)} />
    ${!image && !found.error && html`<${Loading} />`}
    ${image && html`<p><code>${tag.digest}</code></p><table id="layers"><thead><tr><th scope="col">Blob</th><th scope="col">What</th><th scope="col" class="number">Size</th>${own && html`<th scope="col">Without this tag</th>`}</tr></thead>
      ${image.platforms.map((/** @type {any} */ p) => html`<tbody>${p.name && html`<tr><th colspan="4" scope="rowgroup">${p.name}</th></tr>`}${p.layers.map((/** @type {any} */ l) => html`<tr><td><code title=${l.digest}>${l.digest.slice(0, 19)}</code></td><td>${l.what}</td><td class="number">${bytes(l.size)}</td>
        ${own && html`<td>${own.has(l.digest) ? html`<${State} state="leaving" text="goes" />` : html`<${State} state="stays" text="stays: something else uses it" />`}</td>`}</tr>`)}</tbody>`)}</table>
      ${image.more > 0 && html`<p class="faint">${count(image.more, "more platform")} ${image.more === 1 ? "is" : "are"} not shown.</p>`}
      ${image.attached.length > 0 && html`<h3>Attached</h3><ul>${image.attached.map((/** @type {any} */ a) => html`<li>${a.artifactType || a.mediaType} <code>${a.digest.slice(0, 19)}</code> ${bytes(a.size)}</li>`)}</ul>`}`}
  <//>`;
}

/** One plan for all tags that go. @param {{path: string, tags: string[], onClose: () => void, done: () => void}} props */
function DeleteTags({ path, tags, onClose, done }) {
  const plan = useAnswer(async (signal) => (await mayVisit("get", "/exeunt/registry/gc/dry-run") ? freed(path, tags, signal) : null), 0, [path, tags.join()]);
  const p = plan.data;
  const run = async () => {
    /** @type {Error | undefined} */
    let failed;
    await forEach(tags, (t) => send("DELETE", `/v2/${path}/manifests/${t}`).catch((err) => { if (err.code !== 404) failed = err; })); // 404: another client deleted it
    if (failed) throw failed;
    done();
  };
  return html`<${Dialog} title=${`Delete ${tags.length === 1 ? path + ":" + tags[0] : `${count(tags.length, "tag")} of ${path}`}`} onClose=${onClose}>
    ${tags.length > 1 && html`<p class="pairs">${tags.map((t) => html`<code class="pair">${t}</code> `)}</p>`}
    <p id="freed" role="status">${tags.length === 1 ? "The tag goes now, and can be undeleted" : "The tags go now, and can be undeleted"} until ${tags.length === 1 ? "its" : "their"} image is reviewed${p ? `, ${duration(p.afterSeconds * 1000)} later` : ""}. ${plan.error ? html`What that frees is not known: ${plan.error.message}`
      : p === undefined ? html`<span class="faint">Counting what this frees…</span>`
        : p === null ? "Layers that no other image uses are given back afterwards."
          : p.bytes === 0 && p.manifests.length === 0 ? "Nothing else goes: other tags, lists or repositories use all of it."
            : html`Then ${count(p.manifests.length, "manifest")} and ${count(p.blobs.length, "blob")} go, and <strong>${bytes(p.bytes)}</strong> are given back.`}</p>
    ${p && p.tags.length > 0 && html`<p>Tags of its signatures go with it: ${p.tags.map((/** @type {any} */ t) => t.name).join(", ")}.</p>`}
    <${Command} text=${`exeunt registry undelete ${path}:${tags[0]}`} />
    <p class="actions"><${Act} kind="danger" run=${run}>Delete ${tags.length === 1 ? "the tag" : count(tags.length, "tag")}<//> <button type="button" onClick=${onClose}>Cancel</button></p><//>`;
}
