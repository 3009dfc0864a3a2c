"""The look of the report: one style sheet, inline, without fonts or pictures from elsewhere."""

CSS = """
:root {
  color-scheme: light dark;
  --paper: #fdfdfb; --ink: #22262b; --soft: #5b6470; --line: #d9dce0; --tint: #f3f4f1;
  --link: #1f5a99; --note: #8a5a00; --note-tint: #fdf5e2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #16191d; --ink: #dfe3e8; --soft: #9aa4b0; --line: #363c44; --tint: #1e2227;
    --link: #86b7ec; --note: #e6bd6a; --note-tint: #2a2416;
  }
}
* { box-sizing: border-box; }
html { scroll-behavior: auto; scroll-padding-top: 1rem; -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; padding: 3rem 1.25rem 4rem; max-width: 58rem;
  background: var(--paper); color: var(--ink);
  font: 1rem/1.6 Charter, "Bitstream Charter", "Source Serif 4", Cambria, Georgia, serif;
  overflow-wrap: break-word;
}
h1, h2, h3, nav, table, summary, .facts, .downloads, .dag, figcaption .runs {
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; letter-spacing: -.01em; }
h2 {
  font-size: 1.3rem; line-height: 1.3; margin: 3.5rem 0 .8rem; padding-bottom: .35rem;
  border-bottom: 1px solid var(--line);
}
h3 { font-size: 1.02rem; line-height: 1.4; margin: 2.4rem 0 .6rem; }
p { margin: .6rem 0; max-width: 44rem; }
a { color: var(--link); text-underline-offset: .15em; text-decoration-thickness: 1px; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
code, pre { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
code { font-size: .88em; }
.lede { font-size: 1.1rem; color: var(--soft); }
footer { color: var(--soft); font-size: .92rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr));
  gap: 1rem 1.5rem;
  margin: 1.6rem 0; font-size: .92rem; }
.facts dt { color: var(--soft); font-size: .8rem; }
.facts dd { margin: 0; font-variant-numeric: tabular-nums; }
nav { background: var(--tint); border-radius: 8px; padding: 1rem 1.4rem; font-size: .92rem; }
nav h2 { font-size: .8rem; font-weight: 600; color: var(--soft); margin: 0 0 .4rem;
  padding: 0; border: 0; }
nav ul { list-style: none; margin: 0; padding: 0; }
nav > ul { columns: 2 20rem; column-gap: 2.5rem; }
nav li { margin: .15rem 0; break-inside: avoid; }
nav ul ul { padding-left: 1.1rem; }
nav a { text-decoration: none; }
nav a:hover { text-decoration: underline; }
.scroll { overflow-x: auto; max-width: 100%; container-type: inline-size; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .88rem; line-height: 1.4; margin: 0;
  font-variant-numeric: tabular-nums; border-top: 2px solid var(--ink);
  border-bottom: 2px solid var(--ink); }
caption { position: sticky; left: 0; text-align: left; width: min(100cqw, 44rem);
  color: var(--soft); padding: 0 0 .6rem; }
th, td { padding: .34rem .75rem; text-align: right; vertical-align: top; white-space: nowrap; }
th[scope=row], thead tr:first-child th:first-child { text-align: left; }
th[scope=row] { font-weight: 500; }
.numbers th[scope=row] { white-space: normal; max-width: 16rem; }
th[scope=row], thead tr:first-child th:first-child { position: sticky; left: 0;
  background: var(--paper); }
th[scope=colgroup] { text-align: center; border-bottom: 1px solid var(--line); }
thead th { font-weight: 600; vertical-align: bottom; }
thead tr:last-child th, thead th[rowspan] { border-bottom: 1px solid var(--ink); }
tbody tr + tr > * { border-top: 1px solid var(--line); }
tfoot td { text-align: left; white-space: normal; color: var(--soft);
  border-top: 1px solid var(--line); }
.words td, .words th { text-align: left; }
.words td:last-child { white-space: normal; min-width: 16rem; }
td small { color: var(--soft); }
figure { margin: 1rem 0 0; }
figure img { display: block; max-width: 100%; height: auto; background: #fff; border-radius: 4px;
  padding: .5rem; border: 1px solid var(--line); }
figcaption { margin-top: .7rem; max-width: 44rem; font-size: .94rem; }
figcaption .runs { display: block; color: var(--soft); font-size: .84rem; }
.downloads { font-size: .84rem; color: var(--soft); margin: .5rem 0; }
.downloads a { margin-right: .8rem; }
details { margin: .7rem 0; font-size: .92rem; }
summary { cursor: pointer; color: var(--link); font-size: .88rem; width: fit-content; }
pre { overflow: auto; max-height: 30rem; background: var(--tint); border-radius: 6px;
  padding: .8rem 1rem; font-size: .8rem; line-height: 1.5; margin: .6rem 0; }
.missing { background: var(--note-tint); border-left: 3px solid var(--note);
  border-radius: 0 6px 6px 0; padding: .55rem .9rem; max-width: 44rem; }
.notes li { margin: .4rem 0; max-width: 44rem; }
.dag { display: block; max-width: 100%; height: auto; margin: .5rem auto; }
.dag.row { max-width: none; }
.rule rect { fill: var(--tint); stroke: var(--soft); }
.rule text { fill: var(--ink); text-anchor: middle; dominant-baseline: central; font-size: 13px; }
.rule .name { font-weight: 600; }
.rule .note { fill: var(--soft); font-size: 12px; }
.edge { fill: none; stroke: var(--soft); stroke-width: 1.3; }
marker path { fill: var(--soft); }
footer { margin-top: 4rem; padding-top: 1rem; border-top: 1px solid var(--line); }
@media (max-width: 34rem) {
  body { padding-top: 1.6rem; }
  h1 { font-size: 1.55rem; }
  h2 { margin-top: 2.6rem; }
  th, td { padding: .3rem .5rem; }
  th[scope=row], .numbers th[scope=row] { white-space: normal; min-width: 8rem; max-width: 10rem;
    overflow-wrap: anywhere; }
  th code { white-space: nowrap; }
}
@page { margin: 16mm 14mm; }
@media print {
  :root { --paper: #fff; --ink: #000; --soft: #444; --line: #bbb; --tint: #f4f4f4; --link: #000;
    --note: #777; --note-tint: #f4f4f4; }
  body { padding: 0; max-width: none; font-size: 10pt; }
  .scroll { overflow: visible; container-type: normal; }
  caption { position: static; width: auto; }
  th[scope=row], thead tr:first-child th:first-child { position: static; }
  table { font-size: 7.5pt; }
  th, td { padding: .2rem .35rem; white-space: normal; }
  tr, figure, .missing, svg { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  details:not([open]), .downloads { display: none; }
}
""".strip()
