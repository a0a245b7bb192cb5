"""How the page looks, in the light and in the dark.

The first four colours differ by at least 10 in OKLab (of 100 from black to white), all seven by
5.8, also as those see them who do not see red, green or blue, and have a contrast of at least 3 to
the ground; from the fifth on lines are also dashed.
"""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --ground: #ffffff; --ink: #1c2126; --soft: #59636e; --faint: #d9dee3; --card: #f6f8fa;
  --rest: #b9c2cb; --track: #e6eaee; --gap: #e9c9bd;
  --s0: #2451b8; --s1: #b93d08; --s2: #22a884; --s3: #6a1a62;
  --s4: #a08c00; --s5: #8f86ee; --s6: #4f5a63;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14181c; --ink: #e6eaee; --soft: #9aa5b0; --faint: #323a42; --card: #1c2228;
    --rest: #56616c; --track: #2a3138; --gap: #5a3629;
    --s0: #4a9bff; --s1: #f5812b; --s2: #7eeab4; --s3: #c062ab;
    --s4: #f6d06f; --s5: #cfa9f5; --s6: #a9b3bd;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2rem 1.25rem 3rem; max-width: 84rem;
  background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums;
}
h1 { margin: 0; font-size: 1.6rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin: 2.25rem 0 0.75rem; font-size: 1.15rem; }
h3 { margin: 0; font-size: 1rem; overflow-wrap: anywhere; }
p { margin: 0.25rem 0 0; }
.soft, .note { color: var(--soft); }
.note { font-size: 0.85rem; }
a { color: var(--s0); }
dl.headlines {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(11.5rem, 1fr)); gap: 0.75rem;
  margin: 1.25rem 0 0;
}
dl.headlines > div { padding: 0.7rem 0.9rem; background: var(--card); border-radius: 0.5rem; }
dl.headlines dt { color: var(--soft); font-size: 0.8rem; }
dl.headlines dd { margin: 0; }
dl.headlines dd.value { font-size: 1.35rem; font-weight: 600; }
dl.headlines dd.detail { color: var(--soft); font-size: 0.8rem; }
.charts {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 34rem), 1fr));
  gap: 1.5rem 2.5rem; align-items: start;
}
figure { margin: 0; max-width: 46rem; }
svg.chart { display: block; width: 100%; height: auto; margin-top: 0.6rem; }
svg text { font-size: 12px; fill: var(--ink); }
svg .tick, svg .axis-name, svg .note { fill: var(--soft); }
svg .end { font-weight: 600; }
svg .grid { stroke: var(--faint); stroke-width: 1; }
svg .axis { stroke: var(--soft); stroke-width: 1; }
svg .reference { stroke: var(--soft); stroke-width: 1.25; stroke-dasharray: 2 4; }
svg .line { fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round; }
svg .line.s4, svg .line.s5, svg .line.s6 { stroke-dasharray: 7 3; }
svg .mark, svg .bar { fill: var(--c); }
svg text.end { fill: var(--c, var(--ink)); }
svg .gap { fill: var(--gap); }
svg .strip { fill: transparent; }
svg .strip:hover { fill: var(--soft); fill-opacity: 0.12; }
svg .column:hover, svg .row:hover { opacity: 0.8; }
.rest { --c: var(--rest); } .track { --c: var(--track); }
.s0 { --c: var(--s0); } .s1 { --c: var(--s1); } .s2 { --c: var(--s2); } .s3 { --c: var(--s3); }
.s4 { --c: var(--s4); } .s5 { --c: var(--s5); } .s6 { --c: var(--s6); }
details { margin-top: 2.25rem; }
summary { cursor: pointer; font-weight: 600; font-size: 1.15rem; }
table { border-collapse: collapse; margin-top: 0.5rem; font-size: 0.9rem; }
th, td { padding: 0.15rem 1.25rem 0.15rem 0; text-align: left; vertical-align: top; }
th { font-weight: 400; color: var(--soft); white-space: nowrap; }
td { overflow-wrap: anywhere; }
@media print { figure { break-inside: avoid; } }
"""
