// A button for an action that requires a permission; without it, it is disabled and shows why.

import type { ComponentChildren } from "preact";
import { isAllowed } from "../state/store";

interface Props {
  permission: string;
  onClick: () => void;
  disabled?: boolean | undefined;
  class?: string;
  title?: string;
  label?: string; // what a screen reader says, if the text is the same in many rows
  children: ComponentChildren;
}

export function ActionButton({ permission, onClick, disabled = false, title, label, children, ...more }: Props) {
  const allowed = isAllowed(permission);
  const why = allowed ? title : `Your role lacks the permission “${permission}”`;
  return <button type="button" {...more} onClick={onClick} disabled={!allowed || disabled} title={why} aria-label={label}>{children}</button>;
}
