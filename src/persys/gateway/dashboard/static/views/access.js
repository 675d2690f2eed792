// The identity of the user, and sign-in with a token.

import * as api from "../api.js";
import { h } from "../dom.js";
import { restart } from "../sync.js";
import { card, facts, when } from "../components.js";

export const title = () => "Access";
export const needs = () => ({});

export function open(route, { redraw }) {
  function signIn(event) {
    event.preventDefault();
    const field = document.getElementById("token");
    api.token.set(field.value.trim());
    field.value = "";
    restart();
  }

  function signOut() {
    api.token.set("");
    restart();
    redraw();
  }

  return {
    draw: (state) => [
      h("h1", { tabindex: "-1" }, "Access"),
      h("div", { class: "grid" }, card("Identity", identityFacts(state)), card("Sign in with a token",
        h("p", {}, "Only if your browser has no client certificate. The token is stored until this tab is closed."),
        h("form", { onsubmit: signIn },
          h("p", {}, h("label", { for: "token" }, "Token "), h("input", { id: "token", type: "password", autocomplete: "off", required: true })),
          h("p", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Sign in"),
            api.token.get() && h("button", { type: "button", onclick: signOut }, "Sign out"))))),
    ],
  };
}

function identityFacts({ identity, link }) {
  if (!identity) return h("p", {}, link.state === "denied" ? `Access denied: ${link.detail}` : "Loading …");
  if (!identity.role) return h("p", {}, "Unauthenticated: the cluster runs with -insecure, so everyone has all permissions.");
  return facts([
    ["Name", identity.name],
    ["Role", identity.role],
    ["Permissions", (identity.deeds ?? []).join(", ")],
    ["Authenticated by", identity.token_id ? `token ${identity.token_id}` : "certificate"],
    ["Expires", identity.expires_at && when(identity.expires_at)],
  ]);
}
