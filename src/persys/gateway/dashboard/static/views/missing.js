// An address that names no page.

import { h } from "../dom.js";

export const title = () => "Not found";
export const needs = () => ({});

export const open = () => ({
  draw: () => [
    h("h1", { tabindex: "-1" }, "Page not found"),
    h("p", {}, "There is no page at ", h("code", {}, location.hash), ". ", h("a", { href: "#/" }, "Overview")),
  ],
});
