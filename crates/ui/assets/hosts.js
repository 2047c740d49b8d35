// This host, and others whose daemons answer.

import { h, show, table, field, message } from "./dom.js";
import { get } from "./server.js";
import { bytes } from "./numbers.js";

const MIB = 1024 * 1024;

export function hostsView(main) {
  const names = h("input", { name: "hosts", autocomplete: "off", spellcheck: "false", placeholder: "all that answer" });
  const button = h("button", { class: "main", id: "probe" }, "Ask");
  const here = h("div", {});
  const others = h("div", {});
  const asked = async (event) => {
    event?.preventDefault();
    button.disabled = true;
    show(others, h("p", { class: "muted" }, "Asking daemons…"));
    try {
      const told = await get(`/api/hosts?names=${encodeURIComponent(names.value)}`);
      show(here, hereOf(told.here));
      show(others, daemonsOf(told));
    } catch (error) {
      show(others, message(error));
    }
    button.disabled = false;
  };
  show(main, h("h1", {}, "Hosts"),
    h("section", { class: "card" }, h("h2", {}, "This host"), here),
    h("section", { class: "card" }, h("h2", {}, "Hosts with daemons"),
      h("form", { class: "fields", onsubmit: asked }, field("Hosts to ask", names,
        "Names between commas; if empty, all whose daemons answer a broadcast."), h("div", {}, h("br", {}), button)),
      h("div", { "aria-live": "polite" }, others)));
  asked();
}

function hereOf({ host, load, memory_free_mib: free }) {
  return table("This host", ["<Host", "Cores", "Load", "Memory", "Free", "<Version"],
    [[host.name, String(host.cores), load.toFixed(2), bytes(host.memory_mib * MIB), bytes(free * MIB), host.version]]);
}

function daemonsOf({ daemons, trouble }) {
  // Whoever has no daemons has no key either: that is no error.
  if (trouble) return h("p", { class: "message" }, `No daemon was asked: ${trouble.what}; ${trouble.advice}`);
  if (daemons.length === 0) {
    return h("p", { class: "empty" }, "No daemon answers. Start comem daemon on the hosts, or name them above.");
  }
  const row = (one) => (one.failure
    ? [one.name, "", "", "", "", "", "", "", one.failure]
    : [one.name === one.host.name ? one.name : `${one.name} (${one.host.name})`, String(one.host.cores),
      one.load.toFixed(2), bytes(one.host.memory_mib * MIB), bytes(one.memory_free_mib * MIB),
      String(one.nodes), one.slots === null ? "any" : String(one.slots), String(one.free_slots),
      one.free_slots > 0 ? "willing" : "no room"]);
  return table("Hosts with daemons", ["<Host", "Cores", "Load", "Memory", "Free", "Nodes", "Slots", "Free slots",
    "<Answer"], daemons.map(row));
}
