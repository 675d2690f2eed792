// Creates elements, and updates one tree to match another in place.
//
// Text is never parsed as markup. Views describe the whole page each time; `morph` changes only what differs, so
// that focus, selection and scroll position are kept.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "rect", "path", "line", "text", "title"]);

export function h(tag, props = {}, ...children) {
  const element = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const HANDLERS = ["onclick", "onsubmit", "oninput", "onchange", "onkeydown"];
// Attributes that the user changes by opening or typing are kept.
const USER_ATTRIBUTES = { DETAILS: "open", INPUT: "value" };

/** Updates the children of `parent` to match these. An element with data-own updates itself. */
export function morph(parent, ...children) {
  const next = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  next.forEach((child, index) => {
    const updated = typeof child === "string" ? document.createTextNode(child) : child;
    const old = parent.childNodes[index];
    if (!old) parent.append(updated);
    else if (isSameElement(old, updated)) update(old, updated);
    else old.replaceWith(updated);
  });
  while (parent.childNodes.length > next.length) parent.lastChild.remove();
}

function isSameElement(old, updated) {
  if (old === updated || old.nodeType !== updated.nodeType || old.nodeName !== updated.nodeName) return old === updated;
  if (old.nodeType !== Node.ELEMENT_NODE) return true;
  return old.dataset.own === updated.dataset.own && old.dataset.key === updated.dataset.key;
}

function update(old, updated) {
  if (old === updated) return;
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== updated.nodeValue) old.nodeValue = updated.nodeValue;
    return;
  }
  if (old.dataset.own !== undefined) return;
  for (const { name } of [...old.attributes]) {
    if (!updated.hasAttribute(name) && USER_ATTRIBUTES[old.tagName] !== name) old.removeAttribute(name);
  }
  for (const { name, value } of updated.attributes) {
    if (old.getAttribute(name) !== value && USER_ATTRIBUTES[old.tagName] !== name) old.setAttribute(name, value);
  }
  for (const name of HANDLERS) if (old[name] !== updated[name]) old[name] = updated[name];
  morph(old, ...updated.childNodes);
}

const ANNOUNCEMENTS_MAX = 1;

/** Announces a change to screen readers. */
export function announce(text) {
  const region = document.getElementById("announce");
  region.append(h("p", {}, text));
  while (region.childNodes.length > ANNOUNCEMENTS_MAX) region.firstChild.remove();
}
