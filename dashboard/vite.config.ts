// Builds the dashboard into the Python package that serves it. `public/` is copied as it is: the page, its icon, and two
// scripts that run before the application. The names of chunks contain a hash of their content, so browsers may keep them.

import { defineConfig } from "vitest/config";

export default defineConfig({
  base: "./",
  build: {
    outDir: process.env["DASHBOARD_OUT"] ?? "../src/persys/gateway/dashboard/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    rollupOptions: {
      input: "src/main.tsx",
      output: {
        entryFileNames: "app.js",
        chunkFileNames: "assets/[name]-[hash].js",
        assetFileNames: (asset) => (asset.names.some((name) => name.endsWith(".css")) ? "app.css" : "assets/[name]-[hash][extname]"),
      },
    },
  },
  server: { fs: { allow: [".", "../src/persys/examples"] } }, // the templates of the page Deploy, for the unit tests
  test: { environment: "happy-dom", isolate: false, include: ["src/**/*.test.{ts,tsx}"] },
});
