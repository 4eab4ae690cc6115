// @ts-check
// Two small charts: a line over the last minutes, and bars over the last day.

import { html } from "./view.js";

/** A line of numbers, the newest at the right. Its text says the newest and the largest.
 * @param {{values: number[], label: string, format?: (n: number) => string}} props */
export function Line({ values, label, format }) {
  const text = format || ((n) => n.toLocaleString("en"));
  const width = 160, height = 36;
  const most = Math.max(1, ...values);
  const step = width / Math.max(1, values.length - 1);
  const points = values.map((v, i) => `${(i * step).toFixed(1)},${(height - 2 - (v / most) * (height - 4)).toFixed(1)}`).join(" ");
  const now = values.length ? values[values.length - 1] : 0;
  return html`<figure class="line"><figcaption>${label}</figcaption>
    <strong>${text(now)}</strong>
    <svg viewBox="0 0 ${width} ${height}" role="img" aria-label=${`${label}: ${text(now)} now, ${text(most)} at most`} preserveAspectRatio="none">
      ${values.length > 1 && html`<polyline points=${points} />`}</svg></figure>`;
}

/** Deletions by time: one bar an interval, its height the objects removed.
 * @param {{bars: {at: number, n: number}[], from: number, to: number, label: string}} props */
export function Timeline({ bars, from, to, label }) {
  const width = 960, height = 56;
  const most = Math.max(1, ...bars.map((b) => b.n));
  const x = (/** @type {number} */ at) => ((at - from) / (to - from)) * width;
  const hours = [];
  for (let h = 0; h <= 24; h += 6) hours.push(from + (h / 24) * (to - from));
  // The root of the share: a cascade of 100,000 must not hide one of ten.
  const tall = (/** @type {number} */ n) => Math.max(3, Math.sqrt(n / most) * (height - 2));
  const total = bars.reduce((sum, b) => sum + b.n, 0);
  return html`<div class="timeline"><svg viewBox="0 0 ${width} ${height}" preserveAspectRatio="none" role="img" aria-label=${`${label}: ${total.toLocaleString("en")} objects`}>
    ${hours.map((h) => html`<line x1=${x(h)} x2=${x(h)} y1="0" y2=${height} class="tick" />`)}
    ${bars.map((b) => html`<rect x=${Math.min(width - 6, x(b.at))} y=${height - tall(b.n)} width="6" height=${tall(b.n)}><title>${b.n} removed, ${new Date(b.at).toLocaleTimeString()}</title></rect>`)}
  </svg><div class="hours" aria-hidden="true">${hours.map((h) => html`<span>${new Date(h).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false })}</span>`)}</div></div>`;
}
