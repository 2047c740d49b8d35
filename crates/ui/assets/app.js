// The page as a whole: its parts, by what stands behind # in the address.

import { h, show, message } from "./dom.js";
import { begin, get, open, whenLocked } from "./server.js";
import { jobsView } from "./jobs.js";
import { jobView } from "./job.js";
import { launchView } from "./launch.js";
import { runsView, runView } from "./runs.js";
import { hostsView } from "./hosts.js";

const VIEWS = [
  ["jobs", "Jobs", jobsView, jobView],
  ["start", "Start a job", launchView],
  ["runs", "Past runs", runsView, runView],
  ["hosts", "Hosts", hostsView],
];
const main = document.getElementById("main");
const nav = document.getElementById("nav");
let leave = () => {};
let about = null;

// A view fills `main` and may return how it is left.
function route() {
  const [, part, ...rest] = location.hash.split("/");
  const [name, title, list, one] = VIEWS.find(([known]) => known === part) ?? VIEWS[0];
  leave();
  leave = () => {};
  show(nav, VIEWS.map(([known, text]) =>
    h("a", { href: `#/${known}`, "aria-current": known === name ? "page" : null }, text)));
  document.title = `${title} – Comem`;
  show(main);
  const id = rest.join("/");
  leave = (id && one ? one(main, decodeURIComponent(id), about) : list(main, about)) ?? (() => {});
}

function lock(trouble) {
  leave();
  leave = () => {};
  show(nav);
  const token = h("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const enter = async (event) => {
    event.preventDefault();
    try {
      await open(token.value.trim().replace(/^.*token=/, ""));
      history.replaceState(null, "", "#/jobs");
      await start();
    } catch (error) {
      lock(error);
    }
  };
  show(main, h("h1", {}, "This page is locked"), trouble ? message(trouble) : null,
    h("form", { class: "card", onsubmit: enter },
      h("p", {}, "comem ui has printed an address in its terminal. Open it as it stands, or enter its token here."),
      h("p", {}, h("label", { for: "token" }, "Token"), token),
      h("button", { class: "main" }, "Unlock")));
  token.focus();
}

async function start() {
  about = await get("/api/about");
  show(document.getElementById("where"), `on ${about.host}, version ${about.version}`);
  route();
}

whenLocked(() => lock(null));
window.addEventListener("hashchange", async () => {
  // Somebody opens the whole address again.
  if (location.hash.startsWith("#token=")) return begin().then(start, lock);
  if (location.hash === "#main") return main.focus();
  return about ? route() : undefined;
});
begin().then((open) => (open ? start() : lock(null)), lock).catch(lock);
