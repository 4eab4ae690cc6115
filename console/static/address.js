// @ts-check
// The address: #/page/part/…?ns=shop&q=web. What a user chooses on a page is in it: the namespace, filters, order,
// selection. So it survives a reload and Back, and can be sent to others.

import { useLayoutEffect, useRef } from "./vendor/htm-preact.js";

let path = "", params = new URLSearchParams();
/** Called when the choices in the address change, but not the page. */
let changed = () => {};

/** Read the address. An entry of the history that this page has not seen keeps the namespace that was chosen before,
 * if it names none: links do not repeat it. @returns {string[]} #/object/core/pods/shop/web → ["object", "core", …] */
export function arrive() {
  const chosen = params.get("ns"), cut = location.hash.indexOf("?");
  path = cut < 0 ? location.hash : location.hash.slice(0, cut);
  params = new URLSearchParams(cut < 0 ? "" : location.hash.slice(cut + 1));
  if (history.state === null && chosen && !params.has("ns")) params.set("ns", chosen);
  if (history.state === null) history.replaceState("seen", "", here());
  return path.replace(/^#\/?/, "").split("/").map((p) => { try { return decodeURIComponent(p); } catch { return p; } });
}

/** @returns {string} */
const here = () => { const text = params.toString(); return (path || "#/now") + (text ? "?" + text : ""); };

/** @param {() => void} listener */
export function onChoice(listener) { changed = listener; }

/** Show another page in place of this one. @param {string} address */
export function replace(address) { history.replaceState(null, "", address); dispatchEvent(new HashChangeEvent("hashchange")); }

/** Change choices; an empty value is the default and leaves the address.
 * @param {Record<string, string>} values @param {boolean} [step] Back undoes it */
export function choose(values, step) {
  for (const [name, value] of Object.entries(values)) if (value) params.set(name, value); else params.delete(name);
  history[step ? "pushState" : "replaceState"]("seen", "", here());
  changed();
}

/** A choice in the address, and how to change it. @param {string} name @param {string[]} [among] the values that it may have, the default first
 * @returns {[string, (value: string) => void]} */
export function choice(name, among) {
  const value = params.get(name) || "";
  return [among && !among.includes(value) ? among[0] : value, (v) => choose({ [name]: among && v === among[0] ? "" : v })];
}

/** Move the selection of a list with j and k; Enter opens it, x chooses it. The address remembers the row that was opened, for Back.
 * @param {string[]} keys of the rows @param {(index: number) => void} open @param {(index: number) => void} [toggle] @returns {number} */
export function useSelection(keys, open, toggle) {
  const chosen = useRef(/** @type {string | undefined} */ (undefined));
  const selected = keys.indexOf(chosen.current ?? params.get("row") ?? "");
  // A layout effect: the keys work as soon as the rows are on the screen. An effect after the paint would lose some.
  useLayoutEffect(() => {
    /** @param {KeyboardEvent} e */
    const key = (e) => {
      const target = /** @type {HTMLElement} */ (e.target);
      if (e.ctrlKey || e.metaKey || e.altKey || (/^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName) && /** @type {any} */ (target).type !== "checkbox") || document.querySelector("dialog[open]")) return;
      const at = keys.indexOf(chosen.current ?? params.get("row") ?? "");
      const to = e.key === "j" ? Math.min(keys.length - 1, at + 1) : e.key === "k" ? Math.max(0, at - 1) : at;
      if (to !== at) { chosen.current = keys[to]; changed(); }
      else if (e.key === "x" && at >= 0 && toggle) toggle(at);
      else if (e.key === "Enter" && at >= 0 && !/^(A|BUTTON|SUMMARY|INPUT)$/.test(target.tagName)) { choose({ row: keys[at] }); open(at); }
    };
    document.addEventListener("keydown", key);
    return () => document.removeEventListener("keydown", key);
  }, [keys]);
  return selected;
}
