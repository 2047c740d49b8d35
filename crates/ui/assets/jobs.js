// The user's jobs on this host.

import { h, show, table, message } from "./dom.js";
import { get } from "./server.js";
import { ago, seconds } from "./numbers.js";

const EVERY_MS = 1500;

export function badge(job) {
  const text = job.state === "ended" && job.status !== null && job.status !== undefined
    ? `ended, status ${job.status}` : job.state;
  const kind = job.state === "ended" ? (job.status === 0 ? "good" : "bad") : job.state;
  return h("span", { class: `badge ${kind}` }, text);
}

function row(job) {
  const since = job.state === "ended"
    ? (job.ended_unix_s ? ago(job.ended_unix_s) : "")
    : seconds(Math.max(0, Date.now() / 1000 - job.started_unix_s));
  return [
    h("a", { href: `#/jobs/${job.number}` }, String(job.number)), job.name, badge(job),
    job.hosts ? String(job.hosts.length) : "", since, h("code", {}, (job.command ?? []).join(" ")),
  ];
}

export function jobsView(main) {
  const running = h("div", {});
  const ended = h("div", {});
  show(main,
    h("div", { class: "row spread" }, h("h1", {}, "Jobs"),
      h("a", { class: "button main", href: "#/start" }, "Start a job")),
    h("section", { class: "card" }, h("h2", {}, "Running"), running),
    h("section", { class: "card" }, h("h2", {}, "Ended within the last hour"), ended));
  let timer = 0;
  let gone = false;
  const heads = ["<Job", "<Name", "<State", "Nodes", "Time", "<Command"];
  const refresh = async () => {
    try {
      if (!document.hidden) {
        const jobs = await get("/api/jobs");
        if (gone) return;
        const [over, live] = [jobs.filter((job) => job.state === "ended"), jobs.filter((job) => job.state !== "ended")];
        show(running, live.length ? table("Running jobs", heads, live.map(row))
          : h("p", { class: "empty" }, "No job of yours runs on this host. Start one here, or with comem run."));
        show(ended, over.length ? table("Ended jobs", heads.with(4, "Ended"), over.map(row))
          : h("p", { class: "empty" }, "None."));
      }
    } catch (error) {
      if (!gone) show(running, message(error));
    }
    if (!gone) timer = setTimeout(refresh, EVERY_MS);
  };
  refresh();
  return () => { gone = true; clearTimeout(timer); };
}
