// Builds the pages into the Python package: two classic scripts, one style sheet, one page, and a note of what they were made from.
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";

import postcss from "postcss";
import { build } from "vite";

const here = dirname(fileURLToPath(import.meta.url));
const root = dirname(here);
const out = resolve(process.argv[2] ?? join(root, "src/vitreous/site/app"));
const reportStyle = join(root, "src/vitreous/templates/report.css");

/** The style of report panels, held inside `.vt-panels`; what dresses a whole page is ours to say. */
const PAGE = /^(:root|\*|html|body|\.top|\.eyebrow|\.bar|\.skip|\.opening|\.hero|\.findings|\.numbers|\.models|\.made|\.lede|h1|\.switch|\.wrap|a:focus-visible)/;

function scoped(css) {
  const tree = postcss.parse(css);
  tree.walkRules((rule) => {
    const kept = rule.selectors.filter((selector) => !PAGE.test(selector));
    if (kept.length) rule.selectors = kept.map((selector) => `.vt-panels ${selector}`);
    else rule.remove();
  });
  tree.walkAtRules("media", (rule) => rule.nodes?.length || rule.remove());
  return tree.toString();
}

const panels = {
  name: "panels",
  resolveId: (id) => (id === "virtual:panels.css" ? "\0virtual:panels.css" : null),
  load: (id) => (id === "\0virtual:panels.css" ? scoped(readFileSync(reportStyle, "utf8")) : null),
};

/** The drawing library's error texts point to pages elsewhere; ours point nowhere. */
const silent = {
  name: "silent",
  transform: (code, id) => (id.includes("regl") ? code.replaceAll(/(?:,? ?(?:please )?see:? )?https?:\/\/[\w.-]+\.(?:com|org)[\w/.-]*/gi, "") : null),
};

async function bundle(name, entry) {
  await build({
    root: here,
    configFile: false,
    logLevel: "warn",
    plugins: [panels, silent],
    oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
    define: { "process.env.NODE_ENV": '"production"' },
    build: {
      outDir: out,
      emptyOutDir: false,
      target: "es2020",
      cssCodeSplit: false,
      modulePreload: false,
      reportCompressedSize: false,
      minify: "oxc",
      lib: { entry: join(here, entry), formats: ["iife"], name: `vitreous_${name}`, fileName: () => `${name}.js`, cssFileName: name },
    },
  });
}

export function sources() {
  const files = ["build.mjs", "index.html", "package.json", "package-lock.json", "tsconfig.json"].map((name) => join(here, name));
  for (const entry of readdirSync(join(here, "src"), { recursive: true, withFileTypes: true })) if (entry.isFile()) files.push(join(entry.parentPath, entry.name));
  return [...files, reportStyle].map((path) => relative(root, path).replaceAll("\\", "/")).sort();
}

function digest(paths, base) {
  const hash = createHash("sha256");
  for (const path of paths) hash.update(`${path}\n`).update(readFileSync(join(base, path))).update("\n");
  return hash.digest("hex");
}

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
await bundle("app", "src/main.tsx");
await bundle("map", "src/map.ts");
copyFileSync(join(here, "index.html"), join(out, "index.html"));
const built = Object.fromEntries(["app.css", "app.js", "index.html", "map.js"].map((name) => [name, digest([name], out)]));
writeFileSync(join(out, "built.json"), `${JSON.stringify({ sources: digest(sources(), root), built }, null, 1)}\n`);
for (const name of Object.keys(built)) console.log(name, `${(readFileSync(join(out, name)).length / 1024).toFixed(0)} KB`);
