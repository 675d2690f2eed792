// The page for an unknown URL.

import { h } from "../dom.js";

export const title = () => "Not found";
export const needs = () => ({});

export const open = () => ({
  draw: () => [
    h("h1", { tabindex: "-1" }, "Page not found"),
    h("p", {}, "No page has the address ", h("code", {}, location.hash), ". ", h("a", { href: "#/" }, "Overview")),
  ],
});
