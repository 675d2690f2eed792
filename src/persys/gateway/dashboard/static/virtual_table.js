// A table that renders only the visible rows, for lists of any length.
//
// A visible row keeps its element, so that focus and selection survive scrolling and updates.

import { h } from "./dom.js";
import { cellsOf, headRow } from "./components.js";

const OVERSCAN = 12; // rows rendered above and below the visible ones
const NARROW = matchMedia("(max-width: 700px)");
const ROW_PX = 34, LINE_PX = 26, EDGE_PX = 6; // as in components.css

export class VirtualTable {
  /** `cells(item)` returns the contents of a row. It is called again only when the item is another object. */
  constructor({ label, heads, key, cells, across = 2 }) {
    Object.assign(this, { heads, key, cells });
    // On a phone each row is a card with `across` cells in a line.
    this.cardPx = Math.ceil(heads.length / across) * LINE_PX + EDGE_PX;
    this.items = [];
    this.rendered = new Map(); // by key: {row, item}
    this.above = h("tr", { "aria-hidden": "true", class: "spacer" }, h("td", { colspan: heads.length }));
    this.below = h("tr", { "aria-hidden": "true", class: "spacer" }, h("td", { colspan: heads.length }));
    this.body = h("tbody", { role: "rowgroup" }, this.above, this.below);
    this.table = h("table", { role: "table" },
      h("caption", { class: "visually-hidden" }, label), headRow(heads, { "aria-rowindex": 1 }), this.body);
    this.element = h("div", { class: "rows", "data-own": label, tabindex: "0", role: "region", "aria-label": label }, this.table);
    this.element.style.setProperty("--row", `${this.cardPx}px`);
    this.element.style.setProperty("--across", across);
    this.element.addEventListener("scroll", () => this.drawLater(), { passive: true });
    this.resizeObserver = new ResizeObserver(() => this.drawLater());
    this.resizeObserver.observe(this.element);
  }

  show(items) {
    this.items = items;
    this.table.setAttribute("aria-rowcount", items.length + 1);
    this.draw();
  }

  drawLater() {
    this.frame ??= requestAnimationFrame(() => { this.frame = undefined; this.draw(); });
  }

  draw() {
    const height = NARROW.matches ? this.cardPx : ROW_PX;
    const first = Math.max(0, Math.floor(this.element.scrollTop / height) - OVERSCAN);
    const count = Math.ceil((this.element.clientHeight || 600) / height);
    const last = Math.min(this.items.length, first + count + 2 * OVERSCAN);
    this.above.style.height = `${first * height}px`;
    this.below.style.height = `${(this.items.length - last) * height}px`;
    this.render(first, last);
  }

  render(first, last) {
    const visible = this.items.slice(first, last);
    const keys = new Set(visible.map(this.key));
    for (const [key, { row }] of this.rendered) {
      if (!keys.has(key)) { row.remove(); this.rendered.delete(key); }
    }
    let next = this.above.nextSibling;
    visible.forEach((item, index) => {
      const row = this.rowOf(item);
      row.setAttribute("aria-rowindex", first + index + 2);
      if (row === next) next = next.nextSibling;
      else this.body.insertBefore(row, next);
    });
  }

  rowOf(item) {
    const key = this.key(item);
    const known = this.rendered.get(key);
    if (known?.item === item) return known.row;
    const cells = cellsOf(this.cells(item), this.heads);
    const row = known?.row ?? h("tr", { role: "row" });
    // The first cell contains the link. It is kept while its text is the same, so that it keeps the focus.
    if (known && known.row.firstChild.textContent === cells[0].textContent) {
      row.replaceChildren(row.firstChild, ...cells.slice(1));
    } else {
      row.replaceChildren(...cells);
    }
    this.rendered.set(key, { row, item });
    return row;
  }

  close() {
    this.resizeObserver.disconnect();
    cancelAnimationFrame(this.frame);
  }
}
