// A component that is loaded when it is first shown. If that fails, it can be tried again.

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

export function lazy<P extends object>(load: () => Promise<ComponentType<P>>): ComponentType<P> {
  let Loaded: ComponentType<P> | null = null;
  return function Lazy(props: P) {
    const [state, setState] = useState<"loading" | "loaded" | "failed">(Loaded ? "loaded" : "loading");
    useEffect(() => {
      if (state !== "loading") return undefined;
      let isShown = true;
      load().then((found) => { Loaded = found; if (isShown) setState("loaded"); }, () => { if (isShown) setState("failed"); });
      return () => { isShown = false; };
    }, [state]);
    if (Loaded && state === "loaded") return <Loaded {...props} />;
    if (state === "failed") return <p class="quiet">This part could not be loaded. <button type="button" onClick={() => setState("loading")}>Try again</button></p>;
    return <p class="quiet">Loading …</p>;
  };
}
