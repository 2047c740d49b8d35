// The form that starts a job. Arguments are a list, so that each stays as it is.

import { h, show, field, message } from "./dom.js";
import { ask } from "./server.js";

// Rows that can be added and taken away. `make` gives a row's controls.
function list(name, adds, make) {
  const rows = h("div", {});
  const add = (focus) => {
    const controls = make(rows.children.length + 1);
    const row = h("div", { class: "listed" }, controls,
      h("button", { type: "button", class: "small", "aria-label": `Take away this ${adds}`,
        onclick: () => { row.remove(); addButton.focus(); } }, "✕"));
    rows.append(row);
    if (focus) controls[0].focus();
  };
  const addButton = h("button", { type: "button", class: "small", onclick: () => add(true) }, `Add ${adds}`);
  return { rows, element: h("fieldset", {}, h("legend", {}, name), rows, addButton) };
}

export function launchView(main, about) {
  const input = (properties) => h("input", { autocomplete: "off", spellcheck: "false", ...properties });
  const option = (value, text) => h("option", { value }, text ?? value);
  const program = input({ required: true, name: "program" });
  const directory = input({ name: "directory", placeholder: about.directory });
  const name = input({ name: "name", maxlength: 64 });
  const nodes = input({ type: "number", min: 1, max: 1024, name: "nodes" });
  const threads = input({ type: "number", min: 1, max: 256, name: "threads" });
  const hosts = input({ name: "hosts", placeholder: "this host" });
  const launch = h("select", { name: "launch" }, option("", "ssh"), option("daemon", "their daemons"));
  const bind = input({ name: "bind", placeholder: "auto" });
  const nice = input({ type: "number", min: -40, max: 40, name: "nice", placeholder: "0" });
  const engine = h("select", { name: "engine" }, option("", "by itself"), about.engines.map((one) => option(one)));
  const backbone = h("select", { name: "backbone" }, option("", "by itself"),
    about.backbones.map((one) => option(one)));
  const rehearse = h("input", { type: "checkbox", name: "rehearse", id: "rehearse" });
  const words = list("Arguments", "argument", (at) =>
    [h("textarea", { rows: 1, "aria-label": `Argument ${at}`, spellcheck: "false" })]);
  const variables = list("Environment", "variable", (at) => [
    input({ class: "narrow", "aria-label": `Name of variable ${at}`, placeholder: "NAME" }),
    h("textarea", { rows: 1, "aria-label": `Value of variable ${at}`, spellcheck: "false" })]);
  const said = h("div", { "aria-live": "polite" });
  const button = h("button", { class: "main", id: "start" }, "Start");

  const form = () => {
    const number = (control) => (control.value === "" ? null : Number(control.value));
    const rows = (of) => [...of.rows.children].map((row) => [...row.querySelectorAll("input, textarea")]);
    return {
      program: program.value, arguments: rows(words).map(([word]) => word.value), directory: directory.value,
      name: name.value, hosts: hosts.value, launch: launch.value, nodes: number(nodes), threads: number(threads),
      bind: bind.value, nice: number(nice), engine: engine.value, backbone: backbone.value, rehearse: rehearse.checked,
      environment: Object.fromEntries(rows(variables).map(([key, value]) => [key.value, value.value])),
    };
  };
  const start = async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      const job = await ask("POST", "/api/jobs", form());
      location.hash = `#/jobs/${job.number}`;
    } catch (error) {
      show(said, message(error));
    }
    button.disabled = false;
  };
  const where = about.allowed
    ? `Programs below ${about.allowed.join(" and ")} alone may be started.`
    : "A path, or a name that is looked up on the server's PATH.";
  show(main, h("h1", {}, "Start a job"), h("form", { class: "card", onsubmit: start },
    said,
    h("div", { class: "fields" }, field("Program", program, where),
      field("Directory", directory, "Where it starts."),
      field("Name", name, "The job's name; the program's if empty.")),
    words.element,
    h("div", { class: "fields" },
      field("Nodes", nodes, "Processes in all; 1 if empty, or what the hosts say."),
      field("Threads in each node", threads, "1 if empty."),
      field("Hosts", hosts, "a:2,b is two nodes on a, one on b."),
      field("Nodes elsewhere are started by", launch)),
    h("div", { class: "fields" },
      field("Cores", bind, "auto, cores, off, or which node runs on which cores: 0:0-3,1:4-7"),
      field("Niceness", nice, "10 lets others go first."),
      field("Engine", engine, "What keeps copies in step."),
      field("Backbone", backbone, "How bytes move.")),
    h("p", {}, h("label", { for: "rehearse" }, rehearse,
      "Rehearse: on one host, run what would run between hosts")),
    variables.element, button));
  program.focus();
}
