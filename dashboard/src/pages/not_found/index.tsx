// The page for an unknown URL.

import type { Page } from "../../app/page";

const View = () => (
  <>
    <h1 tabIndex={-1}>Page not found</h1>
    <p>No page has the address <code>{location.hash}</code>. <a href="#/">Overview</a></p>
  </>
);

export const notFound: Page = { title: () => "Not found", needs: () => ({}), View };
