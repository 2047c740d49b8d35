// Past runs, from their statistics.

import { h, show, table, facts, message } from "./dom.js";
import { get } from "./server.js";
import { ago, bytes, count, seconds, share, sum } from "./numbers.js";
import { bar, partsLegend } from "./plots.js";
import { pagesOf } from "./job.js";

const status = (run) => h("span", { class: `badge ${run.status === 0 ? "good" : "bad"}` }, `status ${run.status}`);
const spent = (times) => times.slice(0, 6);

function barOf(times) {
  const all = spent(times);
  return sum(all) ? bar(all, `${share(all[0], sum(all))} computing`) : "";
}

export function runsView(main) {
  const body = h("section", { class: "card" }, h("p", { class: "muted" }, "Reading…"));
  show(main, h("h1", {}, "Past runs"), body);
  get("/api/runs").then(({ runs, directory }) => {
    const about = h("p", { class: "hint" }, "From the statistics in ", h("code", {}, directory),
      ". Jobs that this page starts leave theirs there; those of comem run do with --stats.");
    if (runs.length === 0) return show(body, h("p", { class: "empty" }, "No run has left statistics so far."), about);
    const rows = runs.map((run) => [
      h("a", { href: `#/runs/${encodeURIComponent(run.id)}` }, h("code", {}, run.command || run.id)), status(run),
      String(run.node_count), seconds(run.wall_s), run.engines, barOf(run.times_us), ago(run.ended_unix_s)]);
    return show(body, table("Past runs", ["<Command", "<Status", "Nodes", "Took", "<Engine", "<Where its time went",
      "Ended"], rows), partsLegend(), about);
  }).catch((error) => show(body, message(error)));
}

export function runView(main, id) {
  const body = h("div", {}, h("p", { class: "muted" }, "Reading…"));
  show(main, h("p", {}, h("a", { href: "#/runs" }, "All runs")), body);
  get(`/api/runs/${encodeURIComponent(id)}`).then((run) => show(body, runOf(run)))
    .catch((error) => show(body, message(error)));
}

function runOf(run) {
  const shared = run.regions.filter((region) => region.false_sharing.length > 0);
  return [
    h("div", { class: "row" }, h("h1", {}, h("code", {}, run.command || run.id)), status(run)),
    run.failure ? h("p", { class: "message bad" }, run.failure) : null,
    run.nobody_joined ? h("p", { class: "message" }, "No node has taken part: the program did not use Comem.") : null,
    h("div", { class: "card" }, facts([["Took", seconds(run.wall_s)], ["Nodes", String(run.node_count)],
      ["Used", run.how], ["Ended", ago(run.ended_unix_s)]])),
    h("section", { class: "card" }, h("h2", {}, "Where the threads' time went"),
      table("Nodes", ["<Node", "<Host", "Threads", "<Time", "Computing", "Waiting", "Messages", "Sent", "Page faults"],
        run.nodes.map(nodeRow)), partsLegend()),
    h("section", { class: "card" }, h("h2", {}, "Regions that cost most"), run.regions.length
      ? table("Regions", ["<Region", "<Engine", "Size", "Faults", "Waiting for data", "Pages fetched", "Diffs",
        "Invalidated", "Falsely shared pages"], run.regions.slice(0, 32).map(regionRow))
      : h("p", { class: "empty" }, "The program had no shared pages.")),
    shared.slice(0, 4).map((region) => h("section", { class: "card" }, pagesOf(region, null))),
    h("section", { class: "card" }, h("h2", {}, "All counters"), counters(run.totals)),
  ];
}

function nodeRow(node) {
  const times = spent(node.times_us);
  const all = sum(times);
  const faults = node.pages ? node.pages.read_faults + node.pages.write_faults : 0;
  return [String(node.node), node.host, String(node.threads), barOf(node.times_us), share(times[0], all),
    share(times[1] + times[2] + times[3], all), count(node.messages.messages_sent), bytes(node.messages.bytes_sent),
    count(faults)];
}

function regionRow(region) {
  return [region.label || region.address, region.engine, bytes(region.bytes), count(region.faults),
    seconds(region.fetch_us / 1e6), count(region.pages_fetched), bytes(region.diff_bytes),
    count(region.invalidations), count(region.false_sharing.length)];
}

function counters(totals) {
  const all = [...Object.entries(totals.messages), ...Object.entries(totals.pages ?? {})].filter(([, n]) => n > 0);
  if (all.length === 0) return h("p", { class: "empty" }, "Nothing was counted.");
  return h("div", { class: "columns" }, [0, 1].map((side) => table("Counters", ["<Counter", "All nodes"],
    all.filter((_, at) => at % 2 === side).map(([name, n]) => [h("code", {}, name), count(n)]))));
}
