// @ts-check
// What differs between two texts, line by line.

import { html } from "./view.js";

/** Beyond so many pairs of lines the middle is shown as replaced: a table of more would stop the page. */
const mostPairs = 4e6;

/** The lines of both texts in order, each with a sign: " " both, "-" only before, "+" only after.
 * @param {string} before @param {string} after @returns {[string, string][]} */
export function lines(before, after) {
  const a = before ? before.split("\n") : [], b = after ? after.split("\n") : [];
  let head = 0, tail = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const x = a.slice(head, a.length - tail), y = b.slice(head, b.length - tail), wide = y.length + 1;
  // longest[i * wide + j]: how many lines x from i and y from j have in common, in order.
  const longest = x.length * y.length > mostPairs ? null : new Uint32Array((x.length + 1) * wide);
  if (longest) {
    for (let i = x.length - 1; i >= 0; i--) for (let j = y.length - 1; j >= 0; j--) {
      longest[i * wide + j] = x[i] === y[j] ? longest[(i + 1) * wide + j + 1] + 1 : Math.max(longest[(i + 1) * wide + j], longest[i * wide + j + 1]);
    }
  }
  /** @type {[string, string][]} */
  const out = a.slice(0, head).map((l) => [" ", l]);
  let i = 0, j = 0;
  while (i < x.length || j < y.length) {
    if (longest && i < x.length && j < y.length && x[i] === y[j]) { out.push([" ", x[i]]); i++; j++; }
    else if (i < x.length && (j === y.length || !longest || longest[(i + 1) * wide + j] >= longest[i * wide + j + 1])) out.push(["-", x[i++]]);
    else out.push(["+", y[j++]]);
  }
  return [...out, ...a.slice(a.length - tail).map((l) => /** @type {[string, string]} */ ([" ", l]))];
}

/** Two texts as one, with what went and what came; equal lines far from a change are counted only.
 * @param {{before: string, after: string, label: string}} props */
export function Diff({ before, after, label }) {
  const all = lines(before, after), near = 3;
  const shown = new Set();
  all.forEach(([sign], i) => { if (sign !== " ") for (let k = i - near; k <= i + near; k++) shown.add(k); });
  /** @type {any[]} */
  const out = [];
  let skipped = 0;
  const skip = () => { if (skipped) out.push(html`<span class="skipped">… ${skipped} equal ${skipped === 1 ? "line" : "lines"}</span>`); skipped = 0; };
  all.forEach(([sign, text], i) => {
    if (!shown.has(i)) { skipped++; return; }
    skip();
    out.push(sign === "-" ? html`<del>- ${text}</del>` : sign === "+" ? html`<ins>+ ${text}</ins>` : "  " + text + "\n");
  });
  skip();
  return html`<pre class="diff" tabindex="0" role="region" aria-label=${label}>${out}</pre>`;
}
