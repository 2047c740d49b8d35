// Numbers as people read them, and differences of samples.

export const PARTS = ["compute", "fetch", "lock", "barrier", "protocol", "idle"];
export const PART_NAMES = {
  compute: "computing", fetch: "waiting for data", lock: "waiting for locks", barrier: "waiting at barriers",
  protocol: "in Comem", idle: "idle",
};

export function count(number) {
  return Math.round(number).toLocaleString("en-US");
}

export function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (number >= 1024 && at < units.length - 1) { number /= 1024; at += 1; }
  return `${at === 0 ? Math.round(number) : number.toFixed(1)} ${units[at]}`;
}

export function seconds(number) {
  if (number < 1) return `${Math.round(number * 1000)} ms`;
  if (number < 60) return `${number.toFixed(number < 10 ? 2 : 1)} s`;
  const whole = Math.floor(number);
  const two = (part) => String(part).padStart(2, "0");
  const hours = Math.floor(whole / 3600);
  return `${hours ? `${hours}:${two(Math.floor(whole / 60) % 60)}` : Math.floor(whole / 60)}:${two(whole % 60)}`;
}

export function share(part, all) {
  return all > 0 ? `${Math.round((100 * part) / all)}%` : "–";
}

export function ago(unixSeconds) {
  const passed = Math.max(1, Math.round(Date.now() / 1000 - unixSeconds));
  return `${passed < 60 ? `${passed} s` : seconds(passed)} ago`;
}

export function parts(time) {
  return PARTS.map((part) => time?.[part] ?? 0);
}

export function sum(numbers) {
  return numbers.reduce((a, b) => a + b, 0);
}

const faultsOf = (c) => c.pages.read_faults + c.pages.write_faults + c.remote_reads + c.remote_writes;

// What a node has counted, in one row of numbers.
function figures(c) {
  return {
    wall_s: c.wall_s, parts: parts(c.time_us), faults: faultsOf(c), pages: c.pages.pages_fetched,
    messages: c.messages_sent, sent: c.bytes_sent, received: c.bytes_received,
  };
}

// What has been counted between two samples of a node; all of it where the node has begun anew.
function since(now, before) {
  if (!before || before.wall_s > now.wall_s) return now;
  const less = (a, b) => Math.max(0, a - b);
  const difference = { parts: now.parts.map((part, at) => less(part, before.parts[at])) };
  for (const name of ["wall_s", "faults", "pages", "messages", "sent", "received"]) {
    difference[name] = less(now[name], before[name]);
  }
  return difference;
}

// A sample against the one before it: each node's figures since then, and all nodes' together with their rates.
export function between(sample, before) {
  const span = before ? Math.max(0.001, sample.elapsed_s - before.elapsed_s) : Math.max(0.001, sample.elapsed_s);
  const nodes = sample.nodes.map((node) => {
    if (!node.counters) return { node, figures: null };
    const earlier = before?.nodes.find((other) => other.node === node.node)?.counters;
    return { node, figures: since(figures(node.counters), earlier ? figures(earlier) : null) };
  });
  const told = nodes.filter((one) => one.figures).map((one) => one.figures);
  const total = (name) => sum(told.map((one) => one[name]));
  return {
    at: sample.elapsed_s, span, nodes, any: told.length > 0,
    parts: PARTS.map((_, at) => sum(told.map((one) => one.parts[at]))),
    faults: total("faults") / span, pages: total("pages") / span, messages: total("messages") / span,
    sent: total("sent") / span, received: total("received") / span,
  };
}
