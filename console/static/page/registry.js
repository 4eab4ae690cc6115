// @ts-check
// Registry: repositories, tags, layers, referrers; delete and undelete; collection.

import { html, useState, useAnswer, choice, Filter, Page, Panel, Problem, Loading, Age, State, Act, Dialog, Command, bytes, count } from "../view.js";
import { get, send, post, query } from "../api.js";

const manifests = ["application/vnd.oci.image.index.v1+json", "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.docker.distribution.manifest.v2+json"].join(", ");
/** Of how many more tags the page reads the manifests at once. */
const someTags = 20;

export function Registry() {
  const list = useAnswer((signal) => get("/apis/registry.exeunt.dev/v1/repositories?limit=500", { signal }), 3000, []);
  const [text] = choice("q");
  const items = ((list.data && list.data.items) || []).filter((/** @type {any} */ r) => r.spec.path.includes(text));
  const sum = (/** @type {string} */ f) => items.reduce((/** @type {number} */ n, /** @type {any} */ r) => n + ((r.status && r.status[f]) || 0), 0);
  return html`<${Page} title="Registry" sub=${list.data ? `${count(items.length, "repository", "repositories")}, ${bytes(sum("size"))}, of which collection will free ${bytes(sum("reclaimable"))}` : ""}
    actions=${html`<${Filter} label="Filter repositories" short="Filter" />`}>
    <${Problem} error=${list.error} />
    ${!list.data && !list.error && html`<${Loading} />`}
    ${list.data && items.length === 0 && html`<p class="empty">There are no repositories. The first push makes one.</p>`}
    ${items.length > 0 && html`<table><thead><tr><th scope="col">Repository</th><th scope="col" class="number">Tags</th><th scope="col" class="number">Manifests</th><th scope="col" class="number">Size</th><th scope="col" class="number">To be freed</th><th scope="col">Last push</th><th scope="col">State</th></tr></thead>
      <tbody>${items.map((/** @type {any} */ r) => { const s = r.status || {}; return html`<tr key=${r.metadata.uid}><td><a href=${"#/registry/" + r.spec.path}>${r.spec.path}</a></td><td class="number">${s.tags || 0}</td><td class="number">${s.manifests || 0}</td>
        <td class="number">${bytes(s.size || 0)}</td><td class="number">${bytes(s.reclaimable || 0)}</td><td><${Age} at=${s.lastPush} /></td><td>${r.metadata.deletionTimestamp ? html`<${State} state="leaving" />` : r.spec.hold ? html`<${State} state="stays" text="on hold" />` : html`<${State} state="live" />`}</td></tr>`; })}</tbody></table>`}
    <${Collection} />
  <//>`;
}

/** What the next collection would take. */
function Collection() {
  const [asked, setAsked] = useState(0);
  const plan = useAnswer((signal) => (asked ? get("/exeunt/registry/gc/dry-run", { signal }) : Promise.resolve(null)), 0, [asked]);
  return html`<${Panel} title="Collection" wide actions=${html`<button type="button" onClick=${() => setAsked(asked + 1)}>What would go now?</button>`}>
    <${Problem} error=${plan.error} />
    ${plan.data ? html`<p><${State} state="leaving" text=${`${count((plan.data.manifests || []).length, "manifest")}, ${count((plan.data.blobs || []).length, "blob")} and ${count(plan.data.uploads, "abandoned upload")}`} />: ${bytes(plan.data.bytes)}. Nothing has been removed.</p>
      ${(plan.data.manifests || []).length > 0 && html`<table><thead><tr><th scope="col">Repository</th><th scope="col">Manifest</th></tr></thead><tbody>${plan.data.manifests.slice(0, 100).map((/** @type {any} */ m) => html`<tr><td>${m.repository}</td><td><code>${m.digest}</code></td></tr>`)}</tbody></table>`}`
      : html`<p class="faint">Untagged manifests and unused layers go by themselves, a day after they became unused. A dry run shows what is due.</p>`}
  <//>`;
}

/** Some tags with their manifests, and layers with the tags that use them.
 * @param {string} path @param {string[]} tags @param {AbortSignal} signal */
async function read(path, tags, signal) {
  const images = await Promise.all(tags.map(async (/** @type {string} */ tag) => {
    const answer = await send("GET", `/v2/${path}/manifests/${tag}`, { signal, accept: manifests });
    const body = await answer.json();
    const digest = answer.headers.get("Docker-Content-Digest") || "";
    const platforms = body.manifests ? await Promise.all(body.manifests.slice(0, 20).map((/** @type {any} */ m) => platform(path, m, signal))) : [{ name: "", layers: layersOf(body), digest }];
    return { tag, digest, platforms };
  }));
  /** @type {Map<string, Set<string>>} */
  const users = new Map();
  for (const i of images) for (const p of i.platforms) for (const l of p.layers) {
    const set = users.get(l.digest) || new Set();
    users.set(l.digest, set.add(i.digest));
  }
  return { images, users };
}

/** @param {any} body */
const layersOf = (body) => [...(body.config ? [{ ...body.config, what: "config" }] : []), ...(body.layers || []).map((/** @type {any} */ l) => ({ ...l, what: "layer" }))];

/** @param {string} path @param {any} m @param {AbortSignal} signal */
async function platform(path, m, signal) {
  const name = m.platform ? [m.platform.os, m.platform.architecture, m.platform.variant].filter(Boolean).join("/") : "";
  const body = await get(`/v2/${path}/manifests/${m.digest}`, { signal, accept: manifests });
  return { name, digest: m.digest, layers: layersOf(body) };
}

/** @param {{path: string}} props */
export function RepositoryPage({ path }) {
  const [text] = choice("q");
  const [most, setMost] = useState(someTags);
  const list = useAnswer(async (signal) => (await get(`/v2/${path}/tags/list?n=1000`, { signal })).tags || [], 5000, [path]);
  const tags = (list.data || []).filter((/** @type {string} */ t) => t.includes(text));
  const some = tags.slice(0, most);
  const content = useAnswer((signal) => read(path, some, signal), 30000, [path, some.join()]);
  const deleted = useAnswer((signal) => get("/exeunt/registry/deleted" + query({ repository: path }), { signal }), 5000, [path]);
  const again = () => { list.again(); deleted.again(); }; // the content follows the list
  const found = content.data;
  const gone = deleted.data || [];
  const all = !!list.data && some.length === list.data.length;
  return html`<${Page} title=${path} sub=${list.data ? count(list.data.length, "tag") + (list.data.length === 1000 ? " and more" : "") : ""} actions=${html`<${Filter} label="Filter tags" /><a class="button" href="#/registry">All repositories</a>`}>
    <${Problem} error=${list.error || content.error} />
    ${(!list.data || !found) && !list.error && !content.error && html`<${Loading} />`}
    ${found && found.images.map((/** @type {any} */ i) => html`<${Image} key=${i.tag} path=${path} image=${i} users=${found.users} all=${all} again=${again} />`)}
    ${some.length < tags.length && html`<p><button type="button" id="more" onClick=${() => setMost(most + someTags)}>Show more: ${some.length} of ${count(tags.length, "tag")} are shown</button></p>`}
    ${list.data && tags.length === 0 && html`<p class="empty">${text ? "No tag matches the filter." : "It has no tags."}</p>`}
    ${gone.length > 0 && html`<${Panel} title="Deleted, and still there" wide><table><thead><tr><th scope="col">Tag</th><th scope="col">Digest</th><th scope="col">Deleted</th><th scope="col">Stays until</th><th scope="col"><span class="hidden">Actions</span></th></tr></thead>
      <tbody>${gone.map((/** @type {any} */ d) => html`<tr><td>${d.tag || html`<span class="faint">none</span>`}</td><td><code title=${d.digest}>${d.digest.slice(0, 19)}</code></td><td><${Age} at=${d.deletedAt} /></td><td><${Age} at=${d.until} /></td>
        <td><${Act} kind="small" run=${async () => { await post("/exeunt/registry/undelete" + query({ repository: path, tag: d.tag, digest: d.digest }), undefined); again(); }}>Undelete ${d.tag}<//></td></tr>`)}</tbody></table><//>`}
  <//>`;
}

/** all: every tag of the repository is shown.
 * @param {{path: string, image: any, users: Map<string, Set<string>>, all: boolean, again: () => void}} props */
function Image({ path, image, users, all: whole, again }) {
  const [deleting, setDeleting] = useState(false);
  const [open, setOpen] = useState(false);
  const referrers = useAnswer((signal) => (open ? get(`/v2/${path}/referrers/${image.digest}`, { signal }) : Promise.resolve({ manifests: [] })), 0, [image.digest, open]);
  const all = new Map();
  for (const p of image.platforms) for (const l of p.layers) all.set(l.digest, l);
  const layers = [...all.values()];
  const own = layers.filter((l) => /** @type {Set<string>} */ (users.get(l.digest)).size === 1);
  const size = (/** @type {any[]} */ ls) => ls.reduce((n, l) => n + l.size, 0);
  const attached = (referrers.data && referrers.data.manifests) || [];
  return html`<${Panel} title=${path + ":" + image.tag} wide actions=${html`<button type="button" class="small danger" onClick=${() => setDeleting(true)}>Delete tag…</button>`}>
    <p><code title=${image.digest}>${image.digest.slice(0, 19)}</code> · ${count(image.platforms.length, "platform")}${image.platforms.some((/** @type {any} */ p) => p.name) ? ": " + image.platforms.map((/** @type {any} */ p) => p.name).join(", ") : ""} · ${bytes(size(layers))}${whole && `, of which ${bytes(size(own))} no other tag of this repository uses`}</p>
    <details onToggle=${(/** @type {any} */ e) => setOpen(e.target.open)}><summary>${count(layers.length, "blob")}, and what is attached</summary><table><thead><tr><th scope="col">Blob</th><th scope="col">What</th><th scope="col" class="number">Size</th><th scope="col">Used by</th></tr></thead><tbody>${layers.map((l) => {
      const n = /** @type {Set<string>} */ (users.get(l.digest)).size;
      return html`<tr><td><code title=${l.digest}>${l.digest.slice(0, 19)}</code></td><td>${l.what}</td><td class="number">${bytes(l.size)}</td><td>${n === 1 ? html`<${State} state="leaving" text=${whole ? "only this image" : "only this image of those shown"} />` : html`<${State} state="stays" text=${count(n, "image")} />`}</td></tr>`;
    })}</tbody></table>
    ${attached.length > 0 && html`<h3>Attached</h3><ul>${attached.map((/** @type {any} */ a) => html`<li>${a.artifactType || a.mediaType} <code>${a.digest.slice(0, 19)}</code> ${bytes(a.size)}</li>`)}</ul>`}</details>
    ${deleting && html`<${Dialog} title=${"Delete " + path + ":" + image.tag} onClose=${() => setDeleting(false)}>
      <p>The tag goes now. Its bytes stay for a day, and the tag can be undeleted until then. <${Freed} path=${path} tag=${image.tag} most=${size(own)} /></p>
      <${Command} text=${`exeunt registry undelete ${path}:${image.tag}`} />
      <p class="actions"><${Act} kind="danger" run=${async () => { await send("DELETE", `/v2/${path}/manifests/${image.tag}`); setDeleting(false); again(); }}>Delete the tag<//> <button type="button" onClick=${() => setDeleting(false)}>Cancel</button></p><//>`}
  <//>`;
}

/** What deleting a tag frees, in all repositories. Clients that may not ask for a dry run
 * read what this repository alone says.
 * @param {{path: string, tag: string, most: number}} props */
function Freed({ path, tag, most }) {
  const plan = useAnswer((signal) => get("/exeunt/registry/gc/dry-run" + query({ repository: path, tag }), { signal }), 0, [path, tag]);
  if (plan.error) return html`Afterwards at most ${bytes(most)} are given back: layers that other repositories use stay.`;
  if (!plan.data) return html`<span class="faint">Counting what this frees…</span>`;
  const { manifests, blobs, bytes: n } = plan.data;
  return n === 0 && manifests.length === 0 ? html`Nothing else goes: other tags, lists or repositories use all of it.`
    : html`Afterwards ${count(manifests.length, "manifest")} and ${count(blobs.length, "blob")} go, and <strong>${bytes(n)}</strong> are given back.`;
}
