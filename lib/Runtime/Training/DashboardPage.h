//===- DashboardPage.h - The page that shows a run --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_DASHBOARDPAGE_H
#define PLAIT_LIB_RUNTIME_TRAINING_DASHBOARDPAGE_H

namespace plait::runtime {

// A page is these three, with the style after the first and the data, JSON,
// after the second.

inline constexpr char dashboardHead[] = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>plait-run</title><style>)html";

inline constexpr char dashboardBody[] = R"html(
.grid { display: grid; grid-template-columns: 1fr 1fr; gap: 0 1.5em; }
.grid h2 { margin: 1em 0 .3em; border: 0; } .dot { stroke: #fff; }
.axis { stroke: #ddd; } .now { float: right; font-weight: normal; color: #666; }
.wide { overflow-x: auto; } .slow { color: #c00; font-weight: bold; }
.row { display: flex; align-items: center; font-size: 12px; line-height: 1.2; }
.row span { flex: 0 0 6.5em; white-space: nowrap; color: #666; }
.row svg { flex: 1; height: 14px; min-width: 0; touch-action: pan-y; }
.first { margin-top: 4px; } #at { min-height: 3em; } .keys span { margin-right: 1em; white-space: nowrap; }
@media (max-width: 700px) { .grid { grid-template-columns: 1fr; } }
@media (prefers-color-scheme: dark) {
  body { background: #16181b; color: #ddd; } .dot { stroke: #16181b; }
  h2, td, th { border-color: #33373c; } .axis { stroke: #33373c; }
  svg text { fill: #aaa; } .note, .now, .row span { color: #aaa; }
  .slow { color: #ff6b5e; }
}
</style></head><body>
<h1 id="model"></h1><p class="big" id="state"></p><p class="note" id="note"></p>
<div class="grid" id="charts"></div>
<div id="watched" hidden><h2 id="step"></h2><p class="note keys" id="keys"></p>
<div id="timeline"></div><p class="note" id="at"></p>
<h2 id="among"></h2><p id="slow"></p><div class="wide"><table id="shares"></table></div></div>
<h2>Memory of a rank</h2><div class="wide"><table id="ranks"></table></div>
<h2>Settings</h2><table id="settings"></table>
<script type="application/json" id="data">)html";

inline constexpr char dashboardScript[] = R"html(</script>
<script>
const run = JSON.parse(document.getElementById('data').textContent);
const running = run.outcome === 'running';
const get = id => document.getElementById(id);
const short = v => v === null ? '-' : Math.abs(v) >= 1e6 || (v && Math.abs(v) < 1e-3)
    ? v.toExponential(2) : String(Number(v.toPrecision(4)));
const size = v => v >= 1e9 ? (v / 1e9).toPrecision(3) + ' GB' : (v / 1e6).toPrecision(3) + ' MB';
const time = s => s < 90 ? s.toFixed(0) + ' s' : s < 5400 ? (s / 60).toFixed(0) + ' min'
    : (s / 3600).toFixed(1) + ' h';

function add(parent, name, attributes, text) {
  const element = document.createElementNS(name === 'svg' || parent.ownerSVGElement !== undefined
      ? 'http://www.w3.org/2000/svg' : 'http://www.w3.org/1999/xhtml', name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  return parent.appendChild(element);
}

// Colours with their names: entries are {color, name}.
function addKeys(parent, entries) {
  for (const {color, name} of entries) {
    const key = add(parent, 'span', {}, name);
    key.prepend(add(key, 'i', {class: 'key', style: `background: ${color}`}));
  }
}

// Round numbers from `low` to `high`, about `count` of them.
function ticks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(x => x * power).find(x => x >= raw);
  const result = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step)
    result.push(Number(at.toPrecision(12)));
  return result;
}

// `series`: {color, points: [[step, value], …], dots}; `floor`: below all values.
function chart(title, series, print, floor = Infinity) {
  series = series.map(s => ({...s, points: s.points.filter(p => p[1] !== null)}));
  const points = series.flatMap(s => s.points);
  if (!points.length) return;
  const box = add(get('charts'), 'div');
  const heading = add(box, 'h2', {}, title);
  const now = add(heading, 'span', {class: 'now'});
  const last = series[0].points.at(-1) || points.at(-1);
  now.textContent = print(last[1]);
  const W = 480, H = 200, left = 62, right = 8, top = 8, bottom = 22;
  const xs = points.map(p => p[0]), ys = points.map(p => p[1]);
  let x0 = Math.min(...xs), x1 = Math.max(...xs), y0 = Math.min(floor, ...ys), y1 = Math.max(...ys);
  if (x0 === x1) { x0 -= .5; x1 += .5; }
  if (y0 === y1) { const d = Math.abs(y0) * .1 || 1; y0 -= d; y1 += d; }
  const X = x => left + (x - x0) / (x1 - x0) * (W - left - right);
  const Y = y => H - bottom - (y - y0) / (y1 - y0) * (H - top - bottom);
  const svg = add(box, 'svg', {viewBox: `0 0 ${W} ${H}`});
  const named = series.filter(s => s.name && s.points.length);
  if (named.length > 1) addKeys(add(box, 'p', {class: 'note keys'}), named);
  for (const y of ticks(y0, y1, 4)) {
    add(svg, 'line', {class: 'axis', x1: left, x2: W - right, y1: Y(y), y2: Y(y)});
    add(svg, 'text', {x: left - 6, y: Y(y) + 4, 'text-anchor': 'end'}, print(y));
  }
  for (const x of ticks(x0, x1, 5).filter(Number.isInteger)) {
    const fits = X(x) + 3.5 * String(x).length < W;
    add(svg, 'text', {x: fits ? X(x) : W, y: H - 6, 'text-anchor': fits ? 'middle' : 'end'}, x);
  }
  for (const s of series) {
    add(svg, 'polyline', {class: 'line', stroke: s.color,
                          points: s.points.map(p => X(p[0]) + ',' + Y(p[1])).join(' ')});
    if (s.dots || s.points.length === 1)
      for (const p of s.points)
        add(svg, 'circle', {class: 'dot', cx: X(p[0]), cy: Y(p[1]), r: 3.5, fill: s.color});
  }
  svg.onmousemove = event => {
    const at = x0 + (event.offsetX / svg.clientWidth * W - left) / (W - left - right) * (x1 - x0);
    now.textContent = series.filter(s => s.points.length).map(s => {
      const p = s.points.reduce((a, b) => Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a);
      return `step ${p[0]}: ${print(p[1])}`;
    }).join(', ');
  };
  svg.onmouseleave = () => { now.textContent = print(last[1]); };
}

const column = index => run.curves.map(p => [p[0], p[index]]);
const done = run.step - run.first, left = run.elapsed / done * (run.steps - run.step);
document.title = `${run.step}/${run.steps} ${run.model}`;
get('model').textContent = run.model;
get('state').textContent = `step ${run.step} of ${run.steps}, ${run.outcome}`
    + (running && run.step < run.steps && done ? `, ${time(left)} left` : '');
get('note').textContent = `${time(run.earlier + run.elapsed)} so far, written `
    + new Date(run.updated * 1000).toLocaleString();
chart('Loss', [{color: '#2a6fbb', name: 'training', points: column(1)},
               {color: '#d1600a', name: 'held-out data', points: run.evaluations, dots: true}], short);
chart('Gradient norm', [{color: '#7a4fa3', points: column(2)}], short);
chart('Learning rate', [{color: '#3a8f4d', points: column(3)}], short);
chart('Tokens per second', [{color: '#2a6fbb', points: column(4)}], short, 0);
if (run.curves.some(p => p[5]))
  chart('Model FLOP utilisation', [{color: '#2a6fbb', points: column(5)}],
        v => (100 * v).toPrecision(3) + ' %', 0);
chart('Resident memory of this process', [{color: '#888', points: column(6)}], size, 0);

// Colours and words of the kinds of bars, by number.
const kinds = [['#2a6fbb', 'forward'], ['#d1600a', 'backward'], ['#e3b341', 'weight gradient'],
               ['#7a4fa3', 'optimizer'], ['#3a8f4d', 'communication'], ['#88888880', 'waiting']];
const period = s => s < 1e-3 ? (1e6 * s).toPrecision(3) + ' µs'
    : s < 1 ? (1e3 * s).toPrecision(3) + ' ms' : s.toPrecision(3) + ' s';

// A bar is [begin, length, kind, name], in microseconds.
function drawRow(parent, names, length, [rank, stream, bars], isFirst) {
  const row = add(parent, 'div', {class: isFirst ? 'row first' : 'row'});
  add(row, 'span', {}, stream ? 'beside' + (stream > 1 ? ' ' + stream : '') : `rank ${rank}`);
  const svg = add(row, 'svg', {viewBox: `0 0 ${length} 10`, preserveAspectRatio: 'none'});
  kinds.forEach(([color], kind) => add(svg, 'path', {
    fill: color,
    d: bars.filter(b => b[2] === kind).map(b => `M${b[0]} 0h${b[1]}v10h${-b[1]}z`).join('')}));
  svg.onpointermove = svg.onpointerdown = event => {
    const at = event.offsetX / svg.clientWidth * length;
    const bar = bars.find(b => b[0] <= at && at < b[0] + b[1]);
    get('at').textContent = `rank ${rank}, ${period(at / 1e6)}: ` + (bar
        ? `${kinds[bar[2]][1]}, ${names[bar[3]]}, takes ${period(bar[1] / 1e6)}` : 'nothing');
  };
}

function drawWatched({step, seconds, names, rows}, watched) {
  get('watched').hidden = false;
  const all = new Set(rows.map(r => r[0])).size;
  get('step').textContent = `Step ${step}, ${period(seconds)}` + (all < watched.ranks_of_run
      ? `: ${all} of ${watched.ranks_of_run} ranks, which the others wait for most` : '');
  addKeys(get('keys'), kinds.map(([color, name]) => ({color, name})));
  rows.forEach((row, i) => drawRow(get('timeline'), names, 1e6 * seconds, row,
                                   !i || rows[i - 1][0] !== row[0]));
  get('at').textContent = 'Point at a bar to see what it is, and how long it takes.';
  get('among').textContent = watched.steps === 1
      ? 'Ranks in the last watched step' : `Ranks in the last ${watched.steps} watched steps`;
  get('slow').textContent = watched.slow.join('. ')
      || 'No rank computes for much longer than those with the same work.';
  get('slow').className = watched.slow.length ? 'slow' : '';
  const head = add(get('shares'), 'tr');
  for (const name of ['rank', 'host', 'position', 'computes', 'times as long', 'waits',
                      'others wait for it'])
    add(head, 'th', ['host', 'position', 'rank'].includes(name) ? {} : {class: 'n'}, name);
  for (const [rank, host, position, computing, times, waiting, waitedFor, slow] of watched.ranks) {
    const row = add(get('shares'), 'tr', slow ? {class: 'slow'} : {});
    for (const text of [rank, host, position]) add(row, 'td', {}, text);
    for (const text of [period(computing), times ? times.toFixed(2) : '-', period(waiting),
                        period(waitedFor)])
      add(row, 'td', {class: 'n'}, text);
  }
}
if (run.timeline) drawWatched(run.timeline, run.watched);

const names = [...new Set(run.ranks.flatMap(r => Object.keys(r.parts)))];
const head = add(get('ranks'), 'tr');
for (const name of ['ranks', ...names.map(n => n.toLowerCase()), 'arena'])
  add(head, 'th', name === 'ranks' ? {} : {class: 'n'}, name);
for (const r of run.ranks) {
  const row = add(get('ranks'), 'tr');
  add(row, 'td', {}, r.first === r.last ? r.first : `${r.first} to ${r.last}`);
  for (const name of names) add(row, 'td', {class: 'n'}, size(r.parts[name] || 0));
  add(row, 'td', {class: 'n'}, size(r.arena));
}
for (const [name, value] of Object.entries(run.settings || {})) {
  const row = add(get('settings'), 'tr');
  add(row, 'td', {}, name);
  add(row, 'td', {}, value);
}
if (running) setTimeout(() => location.reload(), 3000);
</script></body></html>
)html";

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_DASHBOARDPAGE_H
