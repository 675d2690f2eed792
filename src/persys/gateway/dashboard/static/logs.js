// The log of a workload as it is written. Only so many lines are kept on the page.

import * as api from "./api.js";
import { h } from "./dom.js";

const LINES_AT_FIRST = 500, PIECES_MAX = 2000, AGAIN_MS = 2000;

export class Log {
  constructor(id) {
    this.id = id;
    this.text = h("pre", { class: "log", role: "log", tabindex: "0", "aria-label": `Log of ${id}` });
    this.state = h("span", { class: "quiet" });
    this.follow = h("input", { type: "checkbox", id: "log-follow", checked: true, onchange: () => this.toEnd() });
    this.element = h("div", { "data-own": `log-${id}` },
      h("p", { class: "row" }, h("label", { for: "log-follow" }, this.follow, " Follow the end"), this.state), this.text);
    this.stop = new AbortController();
    this.run();
  }

  async run() {
    const { signal } = this.stop;
    while (!signal.aborted) {
      try {
        await this.read(api.whileSeen(signal));
        this.state.textContent = "The log has ended; retrying …";
      } catch (problem) {
        if (signal.aborted) return;
        if (!(problem instanceof api.Problem)) throw problem;
        this.state.textContent = problem.status ? problem.message : "The log was interrupted; retrying …";
      }
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      await api.seen(signal);
    }
  }

  async read(signal) {
    const path = `/workloads/${api.part(this.id)}/logs?follow=true&tail=${LINES_AT_FIRST}`;
    let isFirst = true;
    for await (const piece of api.streamed(path, { signal })) {
      // Begun again: the last lines come again too.
      if (isFirst) this.text.replaceChildren();
      isFirst = false;
      this.state.textContent = "live";
      this.text.append(document.createTextNode(piece));
      while (this.text.childNodes.length > PIECES_MAX) this.text.firstChild.remove();
      this.toEnd();
    }
  }

  toEnd() {
    if (this.follow.checked) this.text.scrollTop = this.text.scrollHeight;
  }

  close() {
    this.stop.abort();
  }
}
