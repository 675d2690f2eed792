// The live log of a workload. The page keeps a limited number of chunks.

import * as api from "./api.js";
import { h } from "./dom.js";

const INITIAL_LINES = 500, CHUNKS_MAX = 2000, RETRY_MS = 2000;

export class Log {
  constructor(id) {
    this.id = id;
    this.text = h("pre", { class: "log", role: "log", tabindex: "0", "aria-label": `Log of ${id}` });
    this.state = h("span", { class: "quiet" });
    this.follow = h("input", { type: "checkbox", id: "log-follow", checked: true, onchange: () => this.scrollToEnd() });
    this.element = h("div", { "data-own": `log-${id}` },
      h("p", { class: "row" }, h("label", { for: "log-follow" }, this.follow, " Follow"), this.state), this.text);
    this.stop = new AbortController();
    this.run();
  }

  async run() {
    const { signal } = this.stop;
    while (!signal.aborted) {
      try {
        await this.read(api.whileVisible(signal));
        this.state.textContent = "The log has ended; retrying …";
      } catch (problem) {
        if (signal.aborted) return;
        if (!(problem instanceof api.Problem)) throw problem;
        this.state.textContent = problem.status ? problem.message : "The log was interrupted; retrying …";
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      await api.untilVisible(signal);
    }
  }

  async read(signal) {
    const path = `/workloads/${api.segment(this.id)}/logs?follow=true&tail=${INITIAL_LINES}`;
    let isFirst = true;
    for await (const chunk of api.stream(path, { signal })) {
      // A new stream repeats the last lines.
      if (isFirst) this.text.replaceChildren();
      isFirst = false;
      this.state.textContent = "live";
      this.text.append(document.createTextNode(chunk));
      while (this.text.childNodes.length > CHUNKS_MAX) this.text.firstChild.remove();
      this.scrollToEnd();
    }
  }

  scrollToEnd() {
    if (this.follow.checked) this.text.scrollTop = this.text.scrollHeight;
  }

  close() {
    this.stop.abort();
  }
}
