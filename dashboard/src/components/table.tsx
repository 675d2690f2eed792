// A table with a header row. On a phone, rows are shown as cards.

import type { ComponentChildren } from "preact";

interface TableProps {
  caption: string;
  heads: string[];
  rows: ComponentChildren[][];
  empty: string;
}

export function Table({ caption, heads, rows, empty }: TableProps) {
  if (!rows.length) return <p class="quiet">{empty}</p>;
  return (
    <table class="cards" role="table">
      <caption class="visually-hidden">{caption}</caption>
      <HeadRow heads={heads} />
      <tbody role="rowgroup">{rows.map((row, index) => <tr role="row" key={index}><Cells contents={row} heads={heads} /></tr>)}</tbody>
    </table>
  );
}

// Explicit roles: browsers do not expose a table with another layout as one.
export const HeadRow = ({ heads, rowIndex }: { heads: ComponentChildren[]; rowIndex?: number }) => (
  <thead role="rowgroup">
    <tr role="row" aria-rowindex={rowIndex}>{heads.map((head, index) => <th scope="col" role="columnheader" key={index}>{head}</th>)}</tr>
  </thead>
);

export const Cells = ({ contents, heads }: { contents: ComponentChildren[]; heads: string[] }) => (
  <>
    {contents.map((content, index) => (index
      ? <td role="cell" data-head={heads[index]} key={index}>{content}</td>
      : <th role="rowheader" scope="row" key={index}>{content}</th>))}
  </>
);
