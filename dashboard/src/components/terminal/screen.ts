// The terminal emulator, with style sheets that the Content Security Policy of the page allows.
//
// xterm.js writes the text of style elements and style attributes, which the policy forbids. It creates all of its
// elements with a document that can be replaced: here, with one whose style elements write to a style sheet that is
// adopted by the shadow root, and whose style attributes are set through the object model.

import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import css from "@xterm/xterm/css/xterm.css?inline";

const SCROLLBACK_LINES = 5000;

export interface Screen {
  terminal: Terminal;
  fit: () => void;
  dispose: () => void;
}

export function openScreen(box: HTMLElement, label: string): Screen {
  const root = box.shadowRoot ?? box.attachShadow({ mode: "open" });
  const parent = document.createElement("div");
  root.replaceChildren(parent);
  root.adoptedStyleSheets = [sheetOf(css)];
  const terminal = new Terminal({
    documentOverride: documentFor(createFor(root)), scrollback: SCROLLBACK_LINES, fontSize: 13, convertEol: false,
    // Links are not opened and titles not set: the output of a workload is not trusted.
    linkHandler: null, screenReaderMode: true, cursorBlink: false, allowProposedApi: false, ...coloursOf(box),
  });
  const addon = new FitAddon();
  terminal.loadAddon(addon);
  openWith(createFor(root), () => terminal.open(parent));
  terminal.textarea?.setAttribute("aria-label", label);
  const fit = () => { if (box.clientWidth) addon.fit(); };
  const observer = new ResizeObserver(fit);
  observer.observe(box);
  fit();
  return { terminal, fit, dispose: () => { observer.disconnect(); terminal.dispose(); } };
}

function coloursOf(box: HTMLElement) {
  const style = getComputedStyle(box);
  return { fontFamily: style.getPropertyValue("--mono") || "monospace", theme: { background: "#14171c", foreground: "#e6e9ee", cursor: "#e6e9ee" } };
}

function sheetOf(text: string): CSSStyleSheet {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(text);
  return sheet;
}

type Create = (name: string) => HTMLElement;

const plain = (name: string): HTMLElement => Document.prototype.createElement.call(document, name);

const createFor = (root: ShadowRoot): Create => (name) => (name === "style" ? styleElement(root) : allowedStyles(plain(name)));

/** The document of the page, except that it creates elements whose styles the policy allows. */
function documentFor(createElement: Create): Document {
  return new Proxy(document, {
    get(target, property) {
      if (property === "createElement") return createElement;
      const value: unknown = Reflect.get(target, property);
      return typeof value === "function" ? value.bind(target) : value;
    },
    set: (target, property, value) => Reflect.set(target, property, value),
  });
}

/** The scroll bar of xterm.js ignores the other document while it is opened: the document of the page creates the same
 * elements until `open` returns. */
function openWith(createElement: Create, open: () => void): void {
  Object.defineProperty(document, "createElement", { value: createElement, configurable: true });
  try {
    open();
  } finally {
    Reflect.deleteProperty(document, "createElement");
  }
}

/** Looks like a style element; its text becomes the content of an adopted style sheet. */
function styleElement(root: ShadowRoot): HTMLElement {
  const element = plain("span"), sheet = sheetOf("");
  element.hidden = true;
  root.adoptedStyleSheets.push(sheet);
  Object.defineProperty(element, "textContent", { get: () => "", set: (text: string) => sheet.replaceSync(text) });
  const remove = element.remove.bind(element);
  element.remove = () => {
    root.adoptedStyleSheets = root.adoptedStyleSheets.filter((one) => one !== sheet);
    remove();
  };
  return element;
}

function allowedStyles(element: HTMLElement): HTMLElement {
  element.setAttribute = function setAttribute(name: string, value: string): void {
    if (name === "style") this.style.cssText = value;
    else Element.prototype.setAttribute.call(this, name, value);
  };
  return element;
}
