// One job while it runs. Its nodes are asked for counters only while this view is seen.

import { h, show, table, facts, message } from "./dom.js";
import { ask, get, listen } from "./server.js";
import { PARTS, PART_NAMES, between, bytes, count, seconds, share, sum } from "./numbers.js";
import { legend, pageMap, partsLegend, rates, timeSplit } from "./plots.js";
import { badge } from "./jobs.js";

// A minute, four times a second.
const MOMENTS = 240;
const OUTPUT_CHARACTERS = 200000;

export function jobView(main, number) {
  const view = new JobView(main, number);
  view.begin();
  return () => view.end();
}

class JobView {
  constructor(main, number) {
    this.path = `/api/jobs/${encodeURIComponent(number)}`;
    this.number = number;
    this.moments = [];
    this.before = null;
    this.stops = [];
    this.gone = false;
    const part = (title, ...more) => h("section", { class: "card" }, h("h2", {}, title), ...more);
    this.title = h("h1", {}, `Job ${number}`);
    this.state = h("span", {});
    this.actions = h("div", { class: "row" });
    this.said = h("div", { "aria-live": "polite" });
    this.facts = h("div", { class: "card" });
    this.tiles = h("dl", { class: "tiles" });
    this.split = h("div", {});
    this.rates = h("div", {});
    this.nodes = h("div", {});
    this.regions = h("div", {});
    this.pages = h("section", { class: "card", hidden: true });
    this.waits = h("div", {}, h("p", { class: "empty" }, "Not asked yet. Asking costs each node one message."));
    this.output = h("pre", { tabindex: 0, "aria-label": "Output" });
    this.live = h("div", {}, this.tiles,
      h("div", { class: "columns" }, part("Where the threads' time goes", this.split, partsLegend()),
        part("Page faults and messages a second", this.rates,
          legend([["fetch", "faults"], ["compute", "messages"]]))),
      part("Nodes", this.nodes), part("Regions that cost most", this.regions), this.pages,
      part("Who waits for what", h("p", {}, h("button", { onclick: () => this.askWaits() }, "Ask now")), this.waits));
    this.printed = part("Output", this.output);
    show(main, h("div", { class: "row spread" }, h("div", { class: "row" }, this.title, this.state), this.actions),
      this.said, this.facts, this.live, this.printed);
  }

  async begin() {
    this.onHidden = () => (document.hidden ? this.unwatch() : this.watch());
    document.addEventListener("visibilitychange", this.onHidden);
    try {
      await this.describe();
    } catch (error) {
      if (!this.gone) show(this.said, message(error));
      this.live.hidden = this.printed.hidden = true;
      return;
    }
    if (this.gone) return;
    if (this.job.here) this.read();
    else show(this.output, "The output of this job goes to the terminal that it was started from.");
    if (!document.hidden) this.watch();
  }

  end() {
    this.gone = true;
    document.removeEventListener("visibilitychange", this.onHidden);
    this.unwatch();
    this.stops.forEach((stop) => stop());
  }

  async describe() {
    this.job = await get(this.path);
    if (this.gone) return;
    const job = this.job;
    this.ended = job.state === "ended";
    show(this.title, job.name);
    show(this.state, badge(job));
    show(this.facts, facts([
      ["Job", String(job.number)], ["Command", h("code", {}, (job.command ?? []).join(" "))],
      ["Directory", job.directory ? h("code", {}, job.directory) : null],
      ["Nodes", job.hosts ? `${job.hosts.length} on ${[...new Set(job.hosts)].join(", ")}, `
        + `${job.threads} thread${job.threads === 1 ? "" : "s"} each` : null],
      ["Engine", job.engine],
    ]));
    this.offer();
    this.live.hidden = this.ended && this.moments.length === 0;
    if (this.ended) this.rest();
  }

  // The last figures stay, and there is no node left to ask.
  rest() {
    if (this.last) this.drawNodes(this.last);
    this.live.querySelectorAll("button").forEach((button) => { button.disabled = true; });
  }

  // What can be done with the job.
  offer() {
    if (!this.ended) {
      const end = () => this.confirm();
      show(this.actions, h("button", { class: "danger", id: "end-job", onclick: end }, "End this job"));
    } else {
      show(this.actions, this.job.run
        ? h("a", { class: "button main", href: `#/runs/${encodeURIComponent(this.job.run)}` }, "Its statistics")
        : null);
    }
  }

  confirm() {
    const yes = h("button", { class: "danger", id: "end-job-yes", onclick: () => this.kill() }, "Yes, end it");
    show(this.actions, h("span", {}, "End this job for all its nodes?"), yes,
      h("button", { onclick: () => this.offer() }, "No"));
    yes.focus();
  }

  async kill() {
    show(this.actions, h("span", { class: "muted" }, "Ending…"));
    try {
      const { said } = await ask("DELETE", this.path);
      if (this.gone) return;
      show(this.said, h("p", { class: "message", id: "killed" }, said));
    } catch (error) {
      if (!this.gone) show(this.said, message(error));
    }
    if (!this.gone) this.describe().catch((error) => show(this.said, message(error)));
  }

  watch() {
    if (this.unlisten || this.ended || this.gone) return;
    this.unlisten = listen(`${this.path}/live`, (kind, data) => this.heard(kind, data), (error) => {
      this.unlisten = null;
      if (error && !this.ended && !this.gone) show(this.said, message(error));
    });
  }

  unwatch() {
    this.unlisten?.();
    this.unlisten = null;
    this.before = null;
  }

  heard(kind, data) {
    if (this.gone) return;
    if (this.silent) show(this.said);
    this.silent = kind === "silent";
    if (kind === "sample") this.take(data);
    else if (kind === "job") this.describe().catch(() => {});
    else if (kind === "silent") {
      show(this.said, message({ what: "the job's launcher says nothing; it may be stopped",
        advice: `continue it: kill -CONT ${data.pid}` }));
    } else if (kind === "trouble" && !this.ended) show(this.said, message(data));
    else if (kind === "ended") this.describe().catch(() => { this.ended = true; });
  }

  take(sample) {
    // Of the very first sample everything since the job's beginning is shown.
    const moment = between(sample, this.before);
    if (this.before) this.moments.push(moment);
    if (this.moments.length > MOMENTS) this.moments.shift();
    this.before = sample;
    if (sample.state !== this.job.state && this.job.state !== "ended") {
      this.job.state = sample.state;
      show(this.state, badge(this.job));
    }
    this.draw(sample, moment);
  }

  draw(sample, moment) {
    const all = sum(moment.parts);
    const waiting = moment.parts[1] + moment.parts[2] + moment.parts[3];
    const tile = (name, value) => h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, value));
    show(this.tiles, tile("Running for", seconds(sample.elapsed_s)), tile("Computing", share(moment.parts[0], all)),
      tile("Waiting", share(waiting, all)), tile("Faults a second", count(moment.faults)),
      tile("Messages a second", count(moment.messages)), tile("Sent a second", bytes(moment.sent)));
    if (this.moments.length > 1) {
      show(this.split, timeSplit(this.moments));
      show(this.rates, rates(this.moments, [["fetch", "faults", (m) => m.faults],
        ["compute", "messages", (m) => m.messages]], count));
    } else {
      show(this.split, h("p", { class: "empty" }, "Waiting for a second sample…"));
    }
    this.last = moment;
    this.drawNodes(moment);
    this.drawRegions(sample.regions);
  }

  drawNodes(moment) {
    const rows = moment.nodes.map(({ node, figures: f }) => {
      const old = node.counters && node.age_ms >= 1000 ? `, silent for ${Math.floor(node.age_ms / 1000)} s` : "";
      const head = [String(node.node), node.host, this.ended ? "ended" : node.state + old];
      if (!f) return [...head, ...PARTS.map(() => ""), "", "", "", ""];
      const rate = (value) => value / Math.max(0.001, f.wall_s);
      return [...head, ...f.parts.map((part) => share(part, sum(f.parts))), count(rate(f.faults)),
        count(rate(f.messages)), bytes(rate(f.sent)), bytes(rate(f.received))];
    });
    show(this.nodes, table("Nodes", ["<Node", "<Host", "<State", ...PARTS.map((part) => PART_NAMES[part]),
      "Faults/s", "Messages/s", "Sent/s", "Received/s"], rows));
  }

  drawRegions(regions) {
    if (regions.length === 0) {
      show(this.regions, h("p", { class: "empty" }, "The program has no shared pages so far."));
      return;
    }
    // A table that is drawn anew four times a second would take the focus from its buttons.
    const focused = document.activeElement?.dataset?.region;
    const button = (region) => {
      const made = h("button", { class: "small", "data-region": region.address,
        "aria-label": `Pages of ${region.label || region.address}`,
        onclick: () => this.askPages(region.address) }, "Pages");
      return made;
    };
    const rows = regions.slice(0, 16).map((region) => [
      region.label || region.address, region.engine, bytes(region.bytes), count(region.faults),
      seconds(region.fetch_us / 1e6), count(region.pages_fetched), bytes(region.diff_bytes),
      count(region.invalidations), button(region)]);
    show(this.regions, table("Regions", ["<Region", "<Engine", "Size", "Faults", "Waiting for data", "Pages fetched",
      "Diffs", "Invalidated", "<False sharing"], rows));
    if (focused) this.regions.querySelector(`[data-region="${CSS.escape(focused)}"]`)?.focus();
  }

  async askPages(address) {
    try {
      const told = await get(`${this.path}/regions/${encodeURIComponent(address)}/pages`);
      if (!this.gone) show(this.pages, pagesOf(told, () => this.askPages(address)));
    } catch (error) {
      if (!this.gone) show(this.pages, h("h2", {}, "Pages"), message(error));
    }
    this.pages.hidden = false;
  }

  async askWaits() {
    try {
      const told = await ask("POST", `${this.path}/waits`, {});
      if (this.gone) return;
      show(this.waits, told.nodes.map((node) => [h("strong", {}, `Node ${node.node} on ${node.host}`),
        node.waits?.length ? h("ul", { class: "waits" }, node.waits.map((line) => h("li", {}, line)))
          : h("p", { class: "muted" }, node.waits ? "No thread waits in Comem." : "It has told nothing.")]));
    } catch (error) {
      if (!this.gone) show(this.waits, message(error));
    }
  }

  read() {
    let any = false;
    show(this.output, h("span", { class: "muted" }, "Nothing so far."));
    const text = document.createTextNode("");
    const append = (more) => {
      if (!any) show(this.output, text);
      any = true;
      const { scrollTop, scrollHeight, clientHeight } = this.output;
      const atEnd = scrollTop + clientHeight >= scrollHeight - 4;
      text.appendData(more);
      const tooMany = text.length - OUTPUT_CHARACTERS;
      if (tooMany > 0) text.deleteData(0, tooMany);
      if (atEnd) this.output.scrollTop = this.output.scrollHeight;
    };
    this.stops.push(listen(`${this.path}/output`, (kind, data) => {
      if (kind === "text") append(data);
      else if (kind === "gap") append(`\n(${bytes(data.bytes)} are not kept any more)\n`);
      else if (kind === "ended") {
        if (!any) show(this.output, h("span", { class: "muted" }, "It has printed nothing."));
        // The registry hears of the end a moment later than this stream.
        this.describe().catch(() => {});
      }
    }, (error) => { if (error && !this.gone) append(`\n(${error.what ?? error})\n`); }));
  }
}

// Engines under which no node hears who has written which bytes of a page.
const UNSEEN_UNDER = ["lrc", "multicast", "hardware", "direct"];

const nodesOf = (page) => page.nodes.join(", ");

// False sharing and copysets of a region.
export function pagesOf(region, again) {
  const shared = region.false_sharing;
  const place = (page) => `${bytes(page.offset)} (page ${count(page.offset / 4096)})`;
  const most = [...shared].sort((a, b) => b.times - a.times).slice(0, 32);
  return [
    h("div", { class: "row spread" }, h("h2", {}, `False sharing in ${region.label || region.address}`),
      again ? h("button", { class: "small", onclick: again }, "Ask again") : null),
    shared.length
      ? [pageMap(region.bytes, shared), table("Falsely shared pages", ["<At", "Intervals", "<Written by nodes",
        "<Variables"], most.map((page) => [place(page), count(page.times), nodesOf(page),
        Array.isArray(page.variables) ? page.variables.join(" ") : page.variables]))]
      : h("p", { class: "empty" }, UNSEEN_UNDER.includes(region.engine)
        ? `Under the engine ${region.engine} false sharing is not looked for; under hlrc, scope and msi it is.`
        : "No page of it is known to be shared falsely."),
    copysetsOf(region, place),
  ];
}

function copysetsOf(region, place) {
  if (!("copysets" in region)) return null;
  const head = h("h2", {}, "Copysets");
  if (region.copysets === null) {
    const why = `Under the engine ${region.engine} no node keeps account of who holds copies.`;
    return [head, h("p", { class: "empty" }, why)];
  }
  if (region.copysets.length === 0) return [head, h("p", { class: "empty" }, "No page has copies on several nodes.")];
  return [head, table("Copysets", ["<At", "<Nodes with a copy"],
    region.copysets.slice(0, 32).map((page) => [place(page), nodesOf(page)]))];
}
