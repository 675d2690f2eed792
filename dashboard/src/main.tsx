// Starts the application.

import { render } from "preact";
import { Frame } from "./app/frame";
import { restart } from "./state/sync";
import "./styles/layout.css";
import "./styles/components.css";

const root = document.getElementById("app");
if (root) {
  root.replaceChildren();
  restart();
  render(<Frame />, root);
}
