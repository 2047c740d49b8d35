// Small plots as SVG: where time went, over time and by node; rates over time; which pages of a region are hot.

import { h, s } from "./dom.js";
import { PARTS, PART_NAMES, sum } from "./numbers.js";

const [WIDTH, HEIGHT, LEFT, TOP, BOTTOM] = [560, 190, 52, 8, 22];

export function legend(classes) {
  return h("div", { class: "legend" }, classes.map(([kind, name]) =>
    h("span", {}, h("i", { class: `of-${kind}`, "aria-hidden": "true" }), name)));
}

export const partsLegend = () => legend(PARTS.map((part) => [part, PART_NAMES[part]]));

function frame(label, from, to, ticks, name) {
  const y = (share) => TOP + (1 - share) * (HEIGHT - TOP - BOTTOM);
  const svg = s("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
  for (const share of [0, 0.5, 1]) {
    svg.append(s("line", { class: "grid", x1: LEFT, x2: WIDTH, y1: y(share), y2: y(share) }));
    svg.append(s("text", { x: LEFT - 6, y: y(share) + 4, "text-anchor": "end" }, ticks(share)));
  }
  const marks = [[from, "start"], [to, "end"]];
  marks.forEach(([at, anchor]) => svg.append(
    s("text", { x: anchor === "start" ? LEFT : WIDTH, y: HEIGHT - 6, "text-anchor": anchor }, name(at))));
  return { svg, y, x: (at) => LEFT + ((at - from) / Math.max(0.001, to - from)) * (WIDTH - LEFT) };
}

// Shares of the threads' time, one above the other. `moments` are results of `between`.
export function timeSplit(moments) {
  const shown = moments.filter((moment) => sum(moment.parts) > 0);
  const [from, to] = [shown[0]?.at ?? 0, shown.at(-1)?.at ?? 1];
  const { svg, x, y } = frame("Where the threads' time goes", from, to, (share) => `${share * 100}%`, asSeconds);
  const shares = shown.map((moment) => {
    const all = sum(moment.parts);
    let under = 0;
    return moment.parts.map((part) => [under / all, (under += part) / all]);
  });
  PARTS.forEach((part, which) => {
    const upper = shown.map((moment, at) => `${x(moment.at)},${y(shares[at][which][1])}`);
    const lower = shown.map((moment, at) => `${x(moment.at)},${y(shares[at][which][0])}`).reverse();
    if (shown.length > 1) svg.append(s("polygon", { class: `of-${part}`, points: [...upper, ...lower].join(" ") }));
  });
  return svg;
}

// Rates over time. `lines` are [class, name, value of a moment].
export function rates(moments, lines, inWords) {
  const [from, to] = [moments[0]?.at ?? 0, moments.at(-1)?.at ?? 1];
  const most = Math.max(1, ...lines.flatMap(([, , of]) => moments.map(of)));
  const names = lines.map(([, name]) => name).join(" and ");
  const { svg, x, y } = frame(`${names} a second`, from, to, (share) => inWords(share * most), asSeconds);
  for (const [kind, , of] of lines) {
    const points = moments.map((moment) => `${x(moment.at)},${y(of(moment) / most)}`).join(" ");
    svg.append(s("polyline", { class: `line of-${kind}`, points }));
  }
  return svg;
}

const asSeconds = (at) => `${at.toFixed(at < 10 ? 1 : 0)} s`;

// A bar of a node's time.
export function bar(times, label) {
  const all = sum(times);
  const svg = s("svg", { class: "plot", viewBox: "0 0 560 14", preserveAspectRatio: "none", role: "img",
    "aria-label": label, height: 14 });
  let at = 0;
  PARTS.forEach((part, which) => {
    const width = all > 0 ? (560 * times[which]) / all : 0;
    if (width > 0) svg.append(s("rect", { class: `of-${part}`, x: at, y: 0, width, height: 14 }));
    at += width;
  });
  return svg;
}

const PAGE = 4096;
const CELLS = 256;

// A region as cells of pages, those hot that are shared falsely.
export function pageMap(bytes, pages) {
  const all = Math.max(1, Math.ceil(bytes / PAGE));
  const each = Math.ceil(all / CELLS);
  const cells = Math.ceil(all / each);
  const times = new Array(cells).fill(0);
  pages.forEach((page) => { times[Math.min(cells - 1, Math.floor(page.offset / PAGE / each))] += page.times; });
  const most = Math.max(...times, 1);
  const across = Math.min(64, cells);
  const label = `${pages.length} of ${all} pages are shared falsely`;
  const size = 560 / 64;
  const svg = s("svg", { class: "plot", viewBox: `0 0 560 ${Math.ceil(cells / across) * size}`, role: "img",
    "aria-label": label });
  times.forEach((heat, at) => svg.append(s("rect", {
    class: heat > 0 ? "cell hot" : "cell", x: (at % across) * size, y: Math.floor(at / across) * size,
    width: size - 1.5, height: size - 1.5, "fill-opacity": heat > 0 ? 0.35 + (0.65 * heat) / most : 1,
  })));
  const what = each === 1 ? "Each cell is a page" : `Each cell is ${each} pages`;
  return [svg, h("p", { class: "hint" }, `${what}; the stronger its colour, the more often several nodes wrote it `
    + "in one interval at different bytes.")];
}
