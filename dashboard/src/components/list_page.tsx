// A page with one searchable table. A page is a definition: what to read, its columns, and the actions of a row.
//
// Actions without permission are not offered.

import type { ComponentChildren, ComponentType } from "preact";
import { useState } from "preact/hooks";
import { handled } from "../api/problem";
import type { NodeProblem } from "../api/schema";
import type { Page } from "../app/page";
import { setQuery, type Route } from "../app/router";
import { counted } from "../format";
import { useReading } from "../state/reading";
import { emptyText, isAllowed, useAppState } from "../state/store";
import { ActionButton } from "./action_button";
import { Quiet } from "./card";
import { notice, perform, performConfirmed, type Question } from "./dialog";
import { NodeLink } from "./links";
import { Search, wordsOf } from "./search";
import { Table } from "./table";

const READ_EVERY_MS = 10_000;
const ROWS_MAX = 500; // above this, search

export interface Found<T> {
  items: T[];
  problems?: NodeProblem[] | undefined; // nodes that did not respond
}

export interface Column<T> {
  head: string;
  cell: (item: T) => ComponentChildren;
}

export interface RowAction<T> {
  verb: string;
  permission: string;
  isOffered?: (item: T) => boolean;
  /** Asked before the action. Without it, the action needs no confirmation. */
  question?: (item: T) => Question | Promise<Question>;
  work: (item: T, answer: Record<string, string>) => Promise<unknown>;
  done: (item: T) => string;
}

export interface ListDefinition<T> {
  title: string;
  intro: ComponentChildren;
  permission: string; // to read it
  read: () => Promise<Found<T>>;
  nameOf: (item: T) => string; // of a row, for its buttons
  textOf: (item: T) => string; // is searched
  columns: Column<T>[];
  actions?: RowAction<T>[];
  empty: string;
  Create?: ComponentType<{ onDone: () => void }>;
}

export function listPage<T>(definition: ListDefinition<T>): Page {
  const View = ({ route }: { route: Route }) => <ListView definition={definition} route={route} />;
  return { title: () => definition.title, needs: () => ({}), View };
}

function ListView<T>({ definition, route }: { definition: ListDefinition<T>; route: Route }) {
  const { identity } = useAppState();
  const { title, intro, permission, Create } = definition;
  const reads = isAllowed(permission);
  return (
    <>
      <h1 tabIndex={-1}>{title}</h1>
      <p class="quiet">{intro}</p>
      {identity && !reads && <Quiet>Not shown: your role lacks the permission “{permission}”.</Quiet>}
      {!identity && <Quiet>{emptyText(false)}</Quiet>}
      {reads && <ListContent definition={definition} route={route} Create={Create} />}
    </>
  );
}

interface ContentProps<T> {
  definition: ListDefinition<T>;
  route: Route;
  Create: ComponentType<{ onDone: () => void }> | undefined;
}

function ListContent<T>({ definition, route, Create }: ContentProps<T>) {
  const [text, setText] = useState(route.query["q"] ?? "");
  const { value, problem, reload } = useReading(definition.read, "", READ_EVERY_MS);
  const choose = (wanted: string) => { setText(wanted); setQuery(route, { q: wanted }); };
  if (!value) return <Quiet>{problem && problem.status !== 401 ? problem.message : emptyText(false)}</Quiet>;
  const found = matching(value.items, definition.textOf, text);
  return (
    <>
      {Create && <Create onDone={reload} />}
      <form class="row filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <Search value={text} placeholder={definition.title.toLowerCase()} onInput={choose} />
      </form>
      <p class="quiet" id="found">{summaryOf(found.length, value.items.length)}</p>
      {problem && <p class="callout bad" role="alert">{problem.message}</p>}
      {(value.problems ?? []).map((one) => <p class="callout" key={one.node_id}><NodeLink id={one.node_id} />: {one.problem}</p>)}
      <Rows definition={definition} items={found.slice(0, ROWS_MAX)} empty={text ? "Nothing matches." : definition.empty} onDone={reload} />
    </>
  );
}

interface RowsProps<T> {
  definition: ListDefinition<T>;
  items: T[];
  empty: string;
  onDone: () => void;
}

function Rows<T>({ definition, items, empty, onDone }: RowsProps<T>) {
  const { title, columns, actions = [], nameOf } = definition;
  const offered = actions.filter((action) => isAllowed(action.permission));
  const heads = [...columns.map((column) => column.head), ...(offered.length ? ["Actions"] : [])];
  const cells = (item: T) => [
    ...columns.map((column) => column.cell(item)),
    ...(offered.length ? [<RowActions actions={offered} item={item} name={nameOf(item)} onDone={onDone} />] : []),
  ];
  return <Table caption={title} heads={heads} empty={empty} rows={items.map(cells)} />;
}

interface RowActionsProps<T> {
  actions: RowAction<T>[];
  item: T;
  name: string;
  onDone: () => void;
}

/** The buttons of one thing, in a row of a list or on its page. */
export const RowActions = <T,>({ actions, item, name, onDone }: RowActionsProps<T>) => (
  <span class="row">
    {actions.filter((action) => isAllowed(action.permission) && (action.isOffered?.(item) ?? true)).map((action) => (
      <ActionButton key={action.verb} permission={action.permission} label={`${action.verb} ${name}`}
        onClick={() => { void performAction(action, item).then(onDone); }}>{action.verb}</ActionButton>
    ))}
  </span>
);

async function performAction<T>(action: RowAction<T>, item: T): Promise<boolean> {
  if (!action.question) return perform(() => action.work(item, {}), action.done(item));
  let question: Question | undefined;
  const isRead = await handled(async () => { question = await action.question?.(item); }, (problem) => notice(problem.message, true));
  return isRead && question !== undefined && performConfirmed(question, (answer) => action.work(item, answer), action.done(item));
}

/** The items whose text has all words. */
export function matching<T>(items: T[], textOf: (item: T) => string, text: string): T[] {
  const wanted = wordsOf(text);
  if (!wanted.length) return items;
  return items.filter((item) => {
    const searched = textOf(item).toLowerCase();
    return wanted.every((word) => searched.includes(word));
  });
}

export function summaryOf(found: number, all: number): string {
  const text = found === all ? counted(all, "entry", "entries") : `${found} of ${counted(all, "entry", "entries")}`;
  return found > ROWS_MAX ? `${text}; the first ${ROWS_MAX} are shown` : text;
}
