// Elements from plain calls, and one tree made like another in place.
//
// Text only ever becomes text. Views say each time how everything shall look; `morph` changes only what
// differs, so focus, selection and scrolling stay where the reader has them.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "rect", "path", "line", "text", "title"]);

export function h(tag, props = {}, ...children) {
  const made = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made[name] = value;
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

const HANDLERS = ["onclick", "onsubmit", "oninput", "onchange", "onkeydown"];
// What the reader has opened or written stays as the reader has it.
const READERS = { DETAILS: "open", INPUT: "value" };

/** Make the children of `parent` like these. An element with data-own looks after itself. */
export function morph(parent, ...children) {
  const wanted = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  wanted.forEach((child, index) => {
    const fresh = typeof child === "string" ? document.createTextNode(child) : child;
    const old = parent.childNodes[index];
    if (!old) parent.append(fresh);
    else if (alike(old, fresh)) become(old, fresh);
    else old.replaceWith(fresh);
  });
  while (parent.childNodes.length > wanted.length) parent.lastChild.remove();
}

function alike(old, fresh) {
  if (old === fresh || old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) return old === fresh;
  if (old.nodeType !== Node.ELEMENT_NODE) return true;
  return old.dataset.own === fresh.dataset.own && old.dataset.key === fresh.dataset.key;
}

function become(old, fresh) {
  if (old === fresh) return;
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.dataset.own !== undefined) return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && READERS[old.tagName] !== name) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && READERS[old.tagName] !== name) old.setAttribute(name, value);
  }
  for (const name of HANDLERS) if (old[name] !== fresh[name]) old[name] = fresh[name];
  morph(old, ...fresh.childNodes);
}

const ELEMENTS_SPOKEN_AT_ONCE = 1;

/** Tell those who do not see the page what has changed. */
export function announce(text) {
  const place = document.getElementById("announce");
  place.append(h("p", {}, text));
  while (place.childNodes.length > ELEMENTS_SPOKEN_AT_ONCE) place.firstChild.remove();
}
