// The page Deploy. Its content is loaded on demand, because it writes YAML.

import type { Page } from "../../app/page";
import type { Route } from "../../app/router";
import { lazy } from "../../components/lazy";

const Deploy = lazy(async () => (await import("./view")).Deploy);
const View = ({ route }: { route: Route }) => <><h1 tabIndex={-1}>Deploy</h1><Deploy route={route} /></>;

export const deploy: Page = { title: () => "Deploy", needs: () => ({}), View };
