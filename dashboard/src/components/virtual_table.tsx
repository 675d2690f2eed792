// A table that renders only the visible rows, for lists of any length.
//
// A visible row keeps its element, so that focus and selection survive scrolling and updates. A row is rendered again
// only when its item is another object.

import { Component, type ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Cells, HeadRow } from "./table";

const OVERSCAN = 12; // rows rendered above and below the visible ones
const NARROW = matchMedia("(max-width: 700px)");
const ROW_PX = 34, LINE_PX = 26, EDGE_PX = 6; // as in components.css
const FIRST_HEIGHT_PX = 600;

interface Props<T> {
  label: string;
  heads: string[];
  headCells?: ComponentChildren[];
  items: T[];
  itemKey: (item: T) => string;
  cells: (item: T) => ComponentChildren[];
  across?: number; // on a phone each row is a card with this number of cells in a line
  version?: unknown; // another value renders all visible rows again
  resetKey?: string; // another value scrolls to the top
}

export function VirtualTable<T>({ label, heads, headCells, items, itemKey, cells, across = 2, version, resetKey = "" }: Props<T>) {
  const box = useRef<HTMLDivElement>(null);
  const [[top, height], setWindow] = useState<[number, number]>([0, FIRST_HEIGHT_PX]);
  useEffect(() => followScrolling(box.current, (next, size) => setWindow([next, size])), []);
  useEffect(() => { if (box.current) box.current.scrollTop = 0; }, [resetKey]);
  const cardPx = Math.ceil(heads.length / across) * LINE_PX + EDGE_PX;
  useLayoutEffect(() => {
    box.current?.style.setProperty("--row", `${cardPx}px`);
    box.current?.style.setProperty("--across", String(across));
  }, [cardPx, across]);
  const rowPx = NARROW.matches ? cardPx : ROW_PX;
  const first = Math.min(Math.max(0, Math.floor(top / rowPx) - OVERSCAN), Math.max(0, items.length - 1));
  const last = Math.min(items.length, first + Math.ceil(height / rowPx) + 2 * OVERSCAN);
  return (
    <div class="rows" data-table={label} tabIndex={0} role="region" aria-label={label} ref={box}>
      <table role="table" aria-rowcount={items.length + 1}>
        <caption class="visually-hidden">{label}</caption>
        <HeadRow heads={headCells ?? heads} rowIndex={1} />
        <tbody role="rowgroup">
          <Spacer key="above" columns={heads.length} height={first * rowPx} />
          {items.slice(first, last).map((item, index) => (
            <Row key={itemKey(item)} item={item} index={first + index + 2} heads={heads} cells={cells as (item: unknown) => ComponentChildren[]} version={version} />
          ))}
          <Spacer key="below" columns={heads.length} height={(items.length - last) * rowPx} />
        </tbody>
      </table>
    </div>
  );
}

/** Reports position and height once per frame. */
function followScrolling(box: HTMLElement | null, report: (top: number, height: number) => void): () => void {
  if (!box) return () => {};
  let frame = 0;
  const later = () => {
    frame ||= requestAnimationFrame(() => { frame = 0; report(box.scrollTop, box.clientHeight || FIRST_HEIGHT_PX); });
  };
  const observer = new ResizeObserver(later);
  observer.observe(box);
  box.addEventListener("scroll", later, { passive: true });
  return () => { observer.disconnect(); box.removeEventListener("scroll", later); cancelAnimationFrame(frame); };
}

const Spacer = ({ columns, height }: { columns: number; height: number }) => (
  <tr aria-hidden="true" class="spacer"><td colSpan={columns} style={{ height: `${height}px` }} /></tr>
);

interface RowProps {
  item: unknown;
  index: number;
  heads: string[];
  cells: (item: unknown) => ComponentChildren[];
  version: unknown;
}

class Row extends Component<RowProps> {
  override shouldComponentUpdate(next: RowProps): boolean {
    const { item, index, version } = this.props;
    return next.item !== item || next.index !== index || next.version !== version;
  }

  override render({ item, index, heads, cells }: RowProps) {
    return <tr role="row" aria-rowindex={index}><Cells contents={cells(item)} heads={heads} /></tr>;
  }
}
