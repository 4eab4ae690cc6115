// @ts-check
// Access: who am I, and what may I do here.

import { html, useAnswer, Page, Panel, Problem, Loading } from "../view.js";
import { post } from "../api.js";

/** @param {{namespace: string, user: any}} props */
export function Access({ namespace, user }) {
  const place = namespace || "default";
  const rules = useAnswer(async (signal) => (await post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
    { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectRulesReview", spec: { namespace: place } }, { signal })).status, 10000, [place]);
  const list = (/** @type {string[] | undefined} */ l) => (l || []).map((x) => (x === "" ? "core" : x)).join(", ");
  return html`<${Page} title="Access" sub=${`You are ${user.name}`}>
    <${Panel} title="Who am I"><table class="facts"><tbody><tr><th scope="row">Name</th><td>${user.name}</td></tr><tr><th scope="row">Groups</th><td>${(user.groups || []).join(", ")}</td></tr></tbody></table><//>
    <${Panel} title=${"What may I do in " + place} wide><${Problem} error=${rules.error} />
      ${!rules.data && !rules.error && html`<${Loading} />`}
      ${rules.data && html`<table><thead><tr><th scope="col">Verbs</th><th scope="col">Resources</th><th scope="col">Groups</th><th scope="col">Names</th></tr></thead>
        <tbody>${(rules.data.resourceRules || []).map((/** @type {any} */ r) => html`<tr><td>${list(r.verbs)}</td><td>${list(r.resources)}</td><td>${list(r.apiGroups)}</td><td>${list(r.resourceNames)}</td></tr>`)}
        ${(rules.data.nonResourceRules || []).map((/** @type {any} */ r) => html`<tr><td>${list(r.verbs)}</td><td>${list(r.nonResourceURLs)}</td><td></td><td></td></tr>`)}</tbody></table>
        ${rules.data.incomplete && html`<p class="faint">The server could not name all rules${rules.data.evaluationError ? ": " + rules.data.evaluationError : ""}.</p>`}`}<//>
  <//>`;
}
