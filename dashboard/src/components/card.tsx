// Boxes with a heading, lists of facts, and tags.

import type { ComponentChildren } from "preact";

interface CardProps {
  title: string;
  width?: "" | "two" | "wide";
  live?: boolean;
  children?: ComponentChildren;
}

export const Card = ({ title, width = "", live = false, children }: CardProps) => (
  <section class={`card ${width}`.trim()} aria-live={live ? "polite" : undefined}><h2>{title}</h2>{children}</section>
);

export type Fact = [name: string, value: ComponentChildren];

/** Facts without a value are left out. */
export const Facts = ({ pairs }: { pairs: Fact[] }) => (
  <dl class="facts">
    {pairs.filter(([, value]) => value !== undefined && value !== "" && value !== null && value !== false).map(([name, value]) => (
      <div key={name}><dt>{name}</dt><dd>{value}</dd></div>
    ))}
  </dl>
);

export const Tags = ({ items }: { items: ComponentChildren[] }) => (
  <ul class="tags">{items.map((item, index) => <li class="tag" key={index}>{item}</li>)}</ul>
);

export const Quiet = ({ children }: { children: ComponentChildren }) => <p class="quiet">{children}</p>;
