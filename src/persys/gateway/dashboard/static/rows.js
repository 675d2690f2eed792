// A table of any length of which only the rows on screen exist.
//
// Rows stay the same elements while they are seen, so that focus and selection survive scrolling and news.

import { h } from "./dom.js";
import { cellsOf, headRow } from "./parts.js";

const BEYOND = 12; // rows made above and below what is seen
const NARROW = matchMedia("(max-width: 700px)");
const ROW_PX = 34, LINE_PX = 26, EDGE_PX = 6; // as parts.css has them

export class Rows {
  /** `cells(item)` gives the contents of a row; one whose item is the same object is not made again. */
  constructor({ label, heads, key, cells, across = 2 }) {
    Object.assign(this, { heads, key, cells });
    // On a phone each row is a card with so many cells beside each other.
    this.cardPx = Math.ceil(heads.length / across) * LINE_PX + EDGE_PX;
    this.items = [];
    this.made = new Map(); // by key: {row, item}
    this.above = h("tr", { "aria-hidden": "true", class: "spacer" }, h("td", { colspan: heads.length }));
    this.below = h("tr", { "aria-hidden": "true", class: "spacer" }, h("td", { colspan: heads.length }));
    this.body = h("tbody", { role: "rowgroup" }, this.above, this.below);
    this.table = h("table", { role: "table" },
      h("caption", { class: "unseen" }, label), headRow(heads, { "aria-rowindex": 1 }), this.body);
    this.element = h("div", { class: "rows", "data-own": label, tabindex: "0", role: "region", "aria-label": label }, this.table);
    this.element.style.setProperty("--row", `${this.cardPx}px`);
    this.element.style.setProperty("--across", across);
    this.element.addEventListener("scroll", () => this.later(), { passive: true });
    this.resized = new ResizeObserver(() => this.later());
    this.resized.observe(this.element);
  }

  show(items) {
    this.items = items;
    this.table.setAttribute("aria-rowcount", items.length + 1);
    this.draw();
  }

  later() {
    this.frame ??= requestAnimationFrame(() => { this.frame = undefined; this.draw(); });
  }

  draw() {
    const height = NARROW.matches ? this.cardPx : ROW_PX;
    const first = Math.max(0, Math.floor(this.element.scrollTop / height) - BEYOND);
    const seen = Math.ceil((this.element.clientHeight || 600) / height);
    const last = Math.min(this.items.length, first + seen + 2 * BEYOND);
    this.above.style.height = `${first * height}px`;
    this.below.style.height = `${(this.items.length - last) * height}px`;
    this.place(first, last);
  }

  place(first, last) {
    const wanted = this.items.slice(first, last);
    const keys = new Set(wanted.map(this.key));
    for (const [key, { row }] of this.made) {
      if (!keys.has(key)) { row.remove(); this.made.delete(key); }
    }
    let next = this.above.nextSibling;
    wanted.forEach((item, index) => {
      const row = this.rowOf(item);
      row.setAttribute("aria-rowindex", first + index + 2);
      if (row === next) next = next.nextSibling;
      else this.body.insertBefore(row, next);
    });
  }

  rowOf(item) {
    const key = this.key(item);
    const made = this.made.get(key);
    if (made?.item === item) return made.row;
    const cells = cellsOf(this.cells(item), this.heads);
    const row = made?.row ?? h("tr", { role: "row" });
    // The first cell holds the link: it is kept while it says the same, for whoever stands on it.
    if (made && made.row.firstChild.textContent === cells[0].textContent) {
      row.replaceChildren(row.firstChild, ...cells.slice(1));
    } else {
      row.replaceChildren(...cells);
    }
    this.made.set(key, { row, item });
    return row;
  }

  close() {
    this.resized.disconnect();
    cancelAnimationFrame(this.frame);
  }
}
