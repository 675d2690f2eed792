// The error of a request. Status 0 means that there was no response.

import type { Problem as Details } from "./schema";

const UNAVAILABLE = new Set([0, 502, 503, 504]);

export class Problem extends Error {
  constructor(
    readonly status: number,
    detail: string,
    readonly more: Details & { line?: number } = {},
  ) {
    super(detail);
  }

  get isUnavailable(): boolean {
    return UNAVAILABLE.has(this.status);
  }
}

/** Runs `work`; a Problem goes to `handle`, all else is an error of the dashboard and is thrown. */
export async function handled(work: () => Promise<void>, handle: (problem: Problem) => void = () => {}): Promise<boolean> {
  try {
    await work();
    return true;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    handle(error);
    return false;
  }
}
