// @ts-check
// JSON as YAML, for people to read. It writes only what JSON can hold.

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
  return " " + yaml(v);
}

/** @param {any} v @param {string} indent @param {boolean} first */
function nested(v, indent, first) {
  const text = yaml(v, indent);
  return first && v && typeof v === "object" ? text.slice(indent.length) || text : text;
}
