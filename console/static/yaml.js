// @ts-check
// JSON as YAML, for people to read. It writes only what JSON can hold.

/** @param {any} o */
const defined = (o) => Object.fromEntries(Object.entries(o).filter(([, v]) => v !== undefined));

/** An object as people read it: without what only machines need, and without secrets.
 * @param {any} object @param {boolean} [all] managed fields too @param {boolean} [secrets] with secrets */
export function readable(object, all, secrets) {
  const { apiVersion, kind, metadata: { name, namespace, labels, annotations, ...meta }, ...rest } = object;
  const shown = { apiVersion, kind, metadata: defined({ name, namespace, labels, annotations, ...meta }), ...rest };
  if (!all) {
    delete shown.metadata.managedFields;
    shown.metadata.annotations = Object.fromEntries(Object.entries(shown.metadata.annotations || {}).filter(([k]) => k !== "kubectl.kubernetes.io/last-applied-configuration"));
    if (!Object.keys(shown.metadata.annotations).length) delete shown.metadata.annotations;
  }
  if (shown.kind === "Secret" && shown.data && !secrets) shown.data = Object.fromEntries(Object.keys(shown.data).map((k) => [k, "(hidden)"]));
  return yaml(shown);
}

/** What people change of an object: not what the server writes. The uid stays, so that it is this object and no other.
 * @param {any} object */
export function editable(object) {
  const { status: _, metadata: { name, namespace, uid, labels, annotations, ownerReferences, finalizers }, ...rest } = object;
  return readable({ ...rest, metadata: { name, namespace, uid, labels, annotations, ownerReferences, finalizers } }, false, true);
}

/** @param {string} s */
function plain(s) {
  return /^[A-Za-z0-9_./][A-Za-z0-9_./ @+-]*$/.test(s) && !/^(true|false|null|yes|no|on|off|y|n|~)$/i.test(s) && !/^[-+]?[.0-9]/.test(s) && !/\s$/.test(s) ? s : JSON.stringify(s);
}

/** @param {any} value @param {string} [indent] @returns {string} */
export function yaml(value, indent = "") {
  if (value === null || value === undefined) return "null";
  if (typeof value === "string") return plain(value);
  if (typeof value !== "object") return String(value);
  if (Array.isArray(value)) {
    if (!value.length) return "[]";
    return value.map((v) => indent + "- " + nested(v, indent + "  ", true)).join("\n");
  }
  const keys = Object.keys(value);
  if (!keys.length) return "{}";
  return keys.map((k) => indent + plain(k) + ":" + below(value[k], indent)).join("\n");
}

/** @param {any} v @param {string} indent */
function below(v, indent) {
  if (v && typeof v === "object" && (Array.isArray(v) ? v.length : Object.keys(v).length)) {
    return "\n" + yaml(v, Array.isArray(v) ? indent : indent + "  ");
  }
  return " " + scalar(v, indent);
}

/** A text of several lines as a block, if YAML can write it so; indent is that of the line before. @param {any} v @param {string} indent */
function scalar(v, indent) {
  if (typeof v !== "string" || !/^[^\s][^]*\n[^]/.test(v) || /\n\n$|[^\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\n]|[ ]\n|[ ]$/.test(v)) return yaml(v);
  const lines = v.replace(/\n$/, "").split("\n");
  return (v.endsWith("\n") ? "|\n" : "|-\n") + lines.map((l) => (l ? indent + "  " + l : "")).join("\n");
}

/** @param {any} v @param {string} indent @param {boolean} first */
function nested(v, indent, first) {
  if (typeof v === "string") return scalar(v, indent.slice(2));
  const text = yaml(v, indent);
  return first && v && typeof v === "object" ? text.slice(indent.length) || text : text;
}
