// @ts-check
// The guard of a namespace: how many objects a delete may remove before someone must confirm it, and who.

import { html, useState, useAnswer, useRight, Panel, Problem, State, Act, Command, count } from "../view.js";
import { send, ask, may } from "../api.js";

const maxCascade = "lifecycle.exeunt.dev/max-cascade", confirmBy = "lifecycle.exeunt.dev/confirm-by";

/** @param {{object: any}} props a Namespace */
export function Guard({ object }) {
  const { name, uid, resourceVersion, annotations = {} } = object.metadata;
  const own = annotations[maxCascade], another = annotations[confirmBy] === "another-user";
  const right = useRight(() => may("patch", "", "namespaces", "", name), [name]);
  const weaker = useRight(() => may("confirm-cascade", "", "namespaces", "", name), [name]);
  // The limit in force: the namespace's, or the server's, which a preview names.
  const found = useAnswer(async (signal) => {
    if (own !== undefined) return { limit: Number(own) };
    const s = await ask("deletionpreviews", "DeletionPreview", { object: { apiVersion: "v1", kind: "Namespace", name, uid }, limit: 1 }, signal);
    return s.refused ? {} : { limit: s.guard && !s.guard.namespace ? s.guard.limit : 0 };
  }, 0, [uid, resourceVersion]);
  const limit = found.data && found.data.limit;
  const [typed, setTyped] = useState(/** @type {string | undefined} */ (undefined));
  const [other, setOther] = useState(/** @type {boolean | undefined} */ (undefined));
  const wanted = typed ?? own ?? "", must = other ?? another;
  const loosens = (another && !must) || (wanted === "" ? own !== undefined : limit === undefined || (limit > 0 && (Number(wanted) === 0 || Number(wanted) > limit)));
  const set = async () => {
    await send("PATCH", "/api/v1/namespaces/" + encodeURIComponent(name), { type: "application/merge-patch+json",
      body: { metadata: { uid, annotations: { [maxCascade]: wanted || null, [confirmBy]: must ? "another-user" : null } } } });
    setTyped(undefined);
    setOther(undefined);
  };
  const whose = own !== undefined ? "" : " That is the server's limit: the namespace has none of its own.";
  return html`<${Panel} title="Guard" wide><${Problem} error=${found.error} />
    <p id="guard" role="status">${limit ? html`<${State} state="stays" text=${`A delete that would remove more than ${count(limit, "object")} waits until it is confirmed`} />${another ? ", by another user than the one who asked for it" : ""}.${whose}`
      : limit === 0 ? html`<${State} state="live" text="Deletes are not held, however large they are" />.${whose && " Neither the namespace nor the server has a limit."}`
        : found.data && "The namespace has no limit of its own: that of the server holds."}</p>
    ${right && html`<form class="guard" onSubmit=${(/** @type {Event} */ e) => e.preventDefault()}>
      <label>Hold deletes of more than <input id="guard-limit" type="number" min="0" max="1000000" placeholder="the server's limit" value=${wanted} onInput=${(/** @type {any} */ e) => setTyped(e.target.value)} /> objects (0: none)</label>
      <label><input id="guard-other" type="checkbox" checked=${must} onChange=${(/** @type {any} */ e) => setOther(e.target.checked)} /> Another user must confirm</label>
      <${Act} id="guard-set" disabled=${weaker === undefined || (wanted === (own ?? "") && must === another) || !/^\d{0,7}$/.test(wanted) || (loosens && !weaker)} run=${set}>Set the guard<//></form>
      ${weaker === false && html`<p class="faint">You may make it stricter. To make it weaker you need the right confirm-cascade on the namespace.</p>`}
      <${Command} text=${`kubectl annotate namespace ${name} --overwrite ${maxCascade}${wanted ? "=" + wanted : "-"} ${confirmBy}${must ? "=another-user" : "-"}`} />`}
  <//>`;
}
