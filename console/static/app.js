// @ts-check
// The shell: sign-in, navigation, search, keyboard. Every page has an address of its own.

import { html, render, useState, useEffect, useLayoutEffect, useRef, useAnswer, useActions, Act, Dialog, Page, Problem } from "./view.js";
import { Palette } from "./palette.js";
import { arrive, choice, choose, onChoice, replace } from "./address.js";
import { list, session, forgetRights } from "./api.js";
import { Now } from "./page/now.js";
import { Kinds, Objects } from "./page/objects.js";
import { ObjectPage } from "./page/object.js";
import { DeletePage, DeletionPage } from "./page/deletion.js";
import { DeleteMany } from "./page/many.js";
import { Why } from "./page/why.js";
import { Archive } from "./page/archive.js";
import { Registry, RepositoryPage } from "./page/registry.js";
import { Machines } from "./page/machines.js";
import { Access } from "./page/access.js";

const tabs = [["now", "Now"], ["objects", "Objects"], ["archive", "Archive"], ["registry", "Registry"], ["machines", "Machines"], ["access", "Access"]];

/** @param {string} method @param {any} [body] */
async function sessionRequest(method, body) {
  const answer = await fetch("/console/session", { method, credentials: "same-origin", headers: { "X-Exeunt-Console": "1", ...(body ? { "Content-Type": "application/json" } : {}) }, body: body && JSON.stringify(body) })
    .catch(() => { throw new Error("The server does not answer."); });
  const text = await answer.text();
  const value = text && text[0] === "{" ? JSON.parse(text) : {};
  if (!answer.ok) throw new Error(value.message || text || "The server refused.");
  return value;
}

// Why a sign-in at the identity provider failed: console/oidc.go has the reasons.
const signInFailures = new Map([
  ["expired", "The sign-in took too long, or began in another browser. Please begin again."],
  ["denied", "Your identity provider did not sign you in."],
  ["provider", "Your identity provider does not answer as expected. Try again in a moment; the server's log says more."],
  ["user", "Your identity provider signed you in, but this server does not accept the name or the group. Its administrator can help."],
  ["busy", "Too many sign-ins failed from your address. Try again in a moment."],
]);

function App() {
  const [user, setUser] = useState(/** @type {any} */ (undefined)); // undefined: not known yet; null: signed out
  const [hash, setHash] = useState(arrive);
  const [notice, setNotice] = useState("");
  const known = (/** @type {any} */ u) => { forgetRights(); Object.assign(session, { user: u.name, registry: u.registry }); setNotice(""); setUser(u);
    const back = sessionStorage.getItem("back"); // the page that was asked for before the identity provider's
    sessionStorage.removeItem("back");
    if (back && /^#?\/?(now)?$/.test(location.hash)) replace(back);
  };
  useEffect(() => {
    // A link with a code may be opened in a tab that shows the page already. The code must not stay in the address.
    const enter = () => {
      const [page, text] = arrive();
      const clean = () => { history.replaceState(null, "", "#/now"); setHash(arrive()); };
      if (page === "signin-failed") { setNotice(signInFailures.get(text) || "The sign-in failed."); clean(); }
      if (page !== "signin" || !text) return null;
      clean();
      return sessionRequest("POST", { code: text }).then(known, (err) => { setUser(null); setNotice(err.message); });
    };
    const moved = () => {
      if (enter()) return;
      setHash(arrive());
      requestAnimationFrame(() => { if (!document.activeElement?.closest(".search")) document.getElementById("main")?.focus({ preventScroll: true }); });
    };
    addEventListener("hashchange", moved);
    onChoice(() => setHash((h) => [...h]));
    session.ended = () => { setUser(null); setNotice("Your session has ended."); };
    if (!enter()) sessionRequest("GET").then(known, () => setUser(null));
    return () => removeEventListener("hashchange", moved);
  }, []);
  if (user === undefined) return html`<p class="faint loading">Loading…</p>`;
  if (user === null) return html`<${SignIn} notice=${notice} onUser=${known} />`;
  const signOut = () => sessionRequest("DELETE").then(() => { sessionStorage.clear(); setNotice("You are signed out."); setUser(null); });
  return html`<${Shell} user=${user} hash=${hash} signOut=${signOut} />`;
}

/** @param {{notice: string, onUser: (u: any) => void}} props */
function SignIn({ notice, onUser }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState(/** @type {Error | undefined} */ (undefined));
  const [provider, setProvider] = useState(false);
  useEffect(() => { document.title = "Sign in · Exeunt"; fetch("/console/signin").then((a) => a.json()).then((m) => setProvider(m.oidc), () => {}); }, []); // without an answer the token remains
  const submit = async (/** @type {Event} */ e) => {
    e.preventDefault();
    try { onUser(await sessionRequest("POST", { token: token.trim() })); } catch (err) { setError(/** @type {Error} */ (err)); }
  };
  return html`<main class="signin" id="main"><h1>Exeunt</h1>
    ${notice && html`<p class="notice" role="status">${notice}</p>`}
    ${provider && html`<p><a class="button primary" href="/console/oidc" onClick=${() => sessionStorage.setItem("back", location.hash)}>Sign in with your identity provider</a></p>`}
    <form onSubmit=${submit}><label>Token <input type="password" id="token" autocomplete="off" value=${token} onInput=${(/** @type {any} */ e) => setToken(e.target.value)} /></label>
      <button class="primary" disabled=${!token.trim()}>Sign in</button></form>
    <${Problem} error=${error} />
    <p class="faint">On the server's machine, <code>exeunt console</code> opens a link that signs the administrator in.
      A token is what <code>exeunt user add</code> or <code>kubectl create token NAME</code> printed, or an ID token of your identity provider (OIDC).</p></main>`;
}

/** @param {{user: any, hash: string[], signOut: () => Promise<void>}} props */
function Shell({ user, hash, signOut }) {
  const [namespace] = choice("ns");
  const [help, setHelp] = useState(false);
  const [answers, setAnswers] = useState(true);
  const search = useRef(/** @type {any} */ (null)), show = useRef(() => {});
  // A layout effect: the keys work as soon as the page is on the screen, and has its name.
  useLayoutEffect(() => {
    const key = (/** @type {KeyboardEvent} */ e) => {
      if ((e.ctrlKey || e.metaKey) && e.key === "k" && !document.querySelector("dialog[open]")) { e.preventDefault(); search.current.focus(); search.current.select(); show.current(); return; }
      if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(/** @type {HTMLElement} */ (e.target).tagName)) return;
      if (e.key === "/") { e.preventDefault(); search.current.focus(); show.current(); }
      if (e.key === "?") setHelp(true);
    };
    document.addEventListener("keydown", key);
    return () => document.removeEventListener("keydown", key);
  }, []);
  useEffect(() => { session.answers = setAnswers; return () => { session.answers = () => {}; }; }, []);
  useActions([
    ...tabs.map(([id, name]) => ({ label: "Go to " + name, run: () => { location.hash = "#/" + id; } })),
    { label: "Keyboard shortcuts", run: () => setHelp(true) }, { label: "Sign out", run: signOut },
    ...(namespace ? [{ label: "All namespaces", run: () => choose({ ns: "", row: "", sel: "" }, true) }] : []),
  ]);
  const here = hash[3] === "plan" ? "objects" : tabOf(hash[0]);
  return html`<a class="skip" href="#main" onClick=${(/** @type {Event} */ e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the content</a>
    <header class="bar"><a class="brand" href="#/now">Exeunt</a>
      <nav aria-label="Pages">${tabs.map(([id, name]) => html`<a href=${"#/" + id} aria-current=${here === id ? "page" : undefined}>${name}</a>`)}</nav>
      <${Palette} input=${search} show=${show} namespace=${namespace} />
      <${Namespaces} value=${namespace} onChange=${(/** @type {string} */ ns) => choose({ ns, row: "", sel: "" }, true)} />
      <span class="who"><span class="faint">${user.name}</span> <button type="button" class="small" onClick=${() => setHelp(true)} aria-label="Keyboard shortcuts">?</button> <${Act} kind="small" run=${signOut}>Sign out<//></span></header>
    ${!answers && html`<p class="problem offline" role="alert"><strong>The server does not answer.</strong> The page tries again. What it shows may be old.</p>`}
    <${Route} hash=${hash} namespace=${namespace} user=${user} />
    ${help && html`<${Dialog} title="Keyboard" onClose=${() => setHelp(false)}><dl class="keys"><dt>/, Ctrl-K</dt><dd>search, and every action</dd><dt>j, k</dt><dd>next, previous row</dd><dt>x</dt><dd>select the row, for a delete of many</dd><dt>Enter</dt><dd>open the row</dd><dt>?</dt><dd>this help</dd><dt>Esc</dt><dd>close</dd></dl>
      <p class="actions"><button type="button" onClick=${() => setHelp(false)}>Close</button></p><//>`}`;
}

/** @param {string} page */
const tabOf = (page) => /** @type {any} */ ({ "": "now", object: "objects", delete: "objects", "delete-many": "objects", deletion: "archive", why: "now" })[page] || page;

/** @param {{hash: string[], namespace: string, user: any}} props */
function Route({ hash, namespace, user }) {
  const [page, a, b, c, d] = hash;
  const ns = c === "-" ? "" : c;
  switch (page) {
    case "": case "now": return html`<${Now} namespace=${namespace} />`;
    case "objects": return a ? html`<${Objects} key=${a + b + namespace} group=${a} resource=${b} namespace=${namespace} />` : html`<${Kinds} namespace=${namespace} />`;
    case "object": return !d ? html`<${Objects} key=${a + b + ns} group=${a} resource=${b} namespace=${ns || namespace} />` : html`<${ObjectPage} key=${hash.join("/")} group=${a} resource=${b} namespace=${ns} name=${d} />`;
    case "delete": return html`<${DeletePage} key=${hash.join("/")} group=${a} resource=${b} namespace=${ns} name=${d} />`;
    case "delete-many": return html`<${DeleteMany} key=${hash.join("/")} group=${a} resource=${b} />`;
    case "why": return html`<${Why} key=${a} uid=${a} />`;
    case "deletion": return html`<${DeletionPage} key=${hash.join("/")} namespace=${a === "-" ? "" : a} chosen=${namespace} id=${b} plan=${c === "plan"} />`;
    case "archive": return a ? html`<${DeletionPage} key=${a} namespace="" chosen=${namespace} id=${a} plan=${false} />` : html`<${Archive} namespace=${namespace} />`;
    case "registry": return a ? html`<${RepositoryPage} key=${hash.join("/")} path=${hash.slice(1).join("/")} />` : html`<${Registry} namespace=${namespace} />`;
    case "machines": return html`<${Machines} />`;
    case "access": return html`<${Access} namespace=${namespace} user=${user} />`;
    default: return html`<${Page} title="There is no such page"><p><a href="#/now">Go to Now</a></p><//>`;
  }
}

/** @param {{value: string, onChange: (n: string) => void}} props */
function Namespaces({ value, onChange }) {
  const found = useAnswer((signal) => list("/api/v1/namespaces", { signal, accept: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io" }), 10000, []);
  const names = (found.data ? found.data.items : []).map((/** @type {any} */ n) => n.metadata.name);
  if (found.error && /** @type {any} */ (found.error).code === 403 || found.data && found.data.more) { // who may not list them, or has too many, can still name one
    return html`<input class="namespace" aria-label="Namespace" placeholder="Namespace" value=${value} onChange=${(/** @type {any} */ e) => onChange(e.target.value.trim())} />`;
  }
  if (value && !names.includes(value)) names.unshift(value);
  return html`<select class="namespace" aria-label="Namespace" value=${value} onChange=${(/** @type {any} */ e) => onChange(e.target.value)}>
    <option value="">All namespaces</option>${names.map((/** @type {string} */ n) => html`<option value=${n}>${n}</option>`)}</select>`;
}

render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById("app")));
