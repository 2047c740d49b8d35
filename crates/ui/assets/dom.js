// Elements from words. Text is always text: nothing here makes HTML of a string.

const SVG = "http" + "://www.w3.org/2000/svg";

// h("p", {class: "muted"}, "text", another): an element. What begins with `on` is a listener.
export function h(tag, properties, ...children) {
  return filled(document.createElement(tag), properties, children);
}

// The same in a picture.
export function s(tag, properties, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

// Shows these in place of what an element has.
export function show(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

// Words up to this length stay in one line, as names of hosts and numbers of jobs do.
const SHORT = 16;

const lengthOf = (cell) => (cell?.textContent ?? String(cell ?? "")).length;

// A table. Heads that begin with `<` stand over words, the others over numbers.
export function table(caption, heads, rows) {
  const isText = heads.map((head) => head.startsWith("<"));
  const names = heads.map((head) => head.replace(/^</, ""));
  const kind = (at) => (isText[at] ? "words" : "number");
  const kindOf = (cell, at) => (isText[at] && lengthOf(cell) <= SHORT ? "words short" : kind(at));
  return h("div", { class: "scroll" }, h("table", { "aria-label": caption },
    h("thead", {}, h("tr", {}, names.map((name, at) => h("th", { scope: "col", class: kind(at) }, name)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, at) => h("td", { class: kindOf(cell, at) }, cell)))))));
}

export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

export function message(trouble) {
  const text = trouble.advice ? `${trouble.what}; ${trouble.advice}` : trouble.what ?? String(trouble);
  return h("p", { class: "message bad", role: "alert" }, text);
}

let numbered = 0;

// A label with its control, and a hint below.
export function field(name, control, hint) {
  control.id = `field-${++numbered}`;
  const told = hint ? h("p", { class: "hint", id: `${control.id}-hint` }, hint) : null;
  if (told) control.setAttribute("aria-describedby", told.id);
  return h("div", {}, h("label", { for: control.id }, name), control, told);
}
