//! How a document looks: light, dark, narrow and printed.
//!
//! Colours are those of Okabe and Ito, which people with any kind of colour vision tell apart, darkened for
//! light paper and lightened for dark. Colour is never alone: lines differ in dashes, marks in shape, bars in
//! texture.

/// The colours on light paper, and on dark.
const LIGHT: &str = "
  --paper: #ffffff; --card: #f6f7f9; --ink: #1c1f23; --quiet: #59616b; --rule: #d8dde3; --grid: #e7eaee;
  --heat: #0a5c94; --accent: #0a5c94;
  --k0: #0072b2; --k1: #c44e00; --k2: #00815e; --k3: #b0528a; --k4: #7a6000; --k5: #2f86bd; --k6: #3b3b3b; --k7: #7b3fb5;
";
const DARK: &str = "
  --paper: #14171a; --card: #1d2125; --ink: #e8ebee; --quiet: #a4adb7; --rule: #3a4149; --grid: #2b3138;
  --heat: #6cbcf0; --accent: #7cc4f4;
  --k0: #56b4e9; --k1: #ff9a4d; --k2: #35cf9f; --k3: #e7a3cb; --k4: #f0e442; --k5: #9fd0f5; --k6: #d5d5d5; --k7: #c9a2f2;
";

/// The style of every document.
pub(super) fn of_documents() -> String {
    format!(
        ":root {{ color-scheme: light dark; {LIGHT}}}\n\
         @media screen and (prefers-color-scheme: dark) {{ :root {{ {DARK}}} }}\n{PAGE}{CHARTS}{PRINT}"
    )
}

/// The style of a picture in a file of its own: with colours in place of variables, which few readers of SVG know.
pub(super) fn of_pictures() -> String {
    let colours = LIGHT.split(';').filter_map(|colour| colour.trim().split_once(": "));
    colours
        .fold(CHARTS.to_owned(), |css, (name, value)| css.replace(&format!("var({name})"), value))
}

/// Everything that is no chart.
const PAGE: &str = r#"* { box-sizing: border-box }
html { -webkit-text-size-adjust: 100% }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif }
main { max-width: 78rem; margin: 0 auto; padding: 1.25rem 1rem 4rem }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0 .4rem; overflow-wrap: anywhere }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .8rem; padding-bottom: .25rem; border-bottom: 1px solid var(--rule) }
h3 { font-size: .95rem; margin: 0 }
p { margin: .4rem 0; max-width: 75ch; overflow-wrap: anywhere }
.lead { color: var(--quiet) }
a { color: var(--accent) }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 9.3rem), 1fr)); gap: .6rem; margin: .6rem 0 }
.facts div { background: var(--card); border-radius: .5rem; padding: .6rem .75rem; min-width: 0 }
.facts dt { font-size: .8rem; color: var(--quiet) }
.facts dd { margin: 0; font-size: 1.15rem; font-weight: 600; line-height: 1.3; overflow-wrap: anywhere }
.facts dd.note { font-size: .8rem; font-weight: 400; color: var(--quiet); margin-top: .15rem }
.findings dt { font-weight: 600; margin-top: .8rem; overflow-wrap: anywhere }
.findings dd { margin: .1rem 0 0; max-width: 75ch; overflow-wrap: anywhere }
.note { color: var(--quiet) }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: 1.6rem 1.4rem; align-items: start; margin: .8rem 0 }
figure { margin: 0; min-width: 0; break-inside: avoid }
figcaption p { margin: .1rem 0 .2rem; font-size: .85rem; line-height: 1.35; color: var(--quiet) }
.chart { display: block; width: 100%; height: auto; max-width: 36rem }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .15rem .9rem; margin: .2rem 0 .3rem; padding: 0; font-size: .82rem; line-height: 1.35 }
.legend li { display: flex; align-items: center; gap: .35rem; min-width: 0; overflow-wrap: anywhere }
.key { flex: none; width: 28px; height: 14px }
details { font-size: .85rem }
details > summary { cursor: pointer; color: var(--quiet); width: fit-content }
.folded { margin: .5rem 0; font-size: 1rem }
.wide { overflow: auto; max-width: 100%; max-height: 34rem }
figure .wide { max-height: 22rem }
table { border-collapse: collapse; font-size: .85rem; margin: .3rem 0 }
th, td { text-align: left; vertical-align: top; padding: .2rem .9rem .2rem 0; border-bottom: 1px solid var(--rule); white-space: nowrap }
td:last-child { white-space: normal }
.name { white-space: normal; overflow-wrap: anywhere; min-width: 7rem; max-width: 24rem }
.number { text-align: right; font-variant-numeric: tabular-nums }
td.number:last-child { white-space: nowrap }
pre { background: var(--card); border-radius: .5rem; padding: .7rem .9rem; overflow: auto; max-height: 32rem; font: 13px/1.45 ui-monospace, "SF Mono", Menlo, Consolas, monospace }
.links { padding-left: 1.1rem; columns: 16rem auto; font-size: .95rem }
.links li { overflow-wrap: anywhere }
#stale { position: fixed; inset: auto 1rem 1rem auto; background: var(--ink); color: var(--paper); padding: .5rem .8rem; border-radius: .5rem; max-width: calc(100% - 2rem) }
"#;

/// Charts.
const CHARTS: &str = ".chart text { font-size: 13px; fill: var(--quiet) }
.chart .title { font-size: 16px; font-weight: 600; fill: var(--ink) }
.chart .on-faint { fill: var(--ink); font-size: 12px }
.chart .on-dark { fill: var(--paper); font-size: 12px }
.grid { stroke: var(--grid); stroke-width: 1 }
.axis { stroke: var(--quiet); stroke-width: 1; fill: none }
.c0 { color: var(--k0) } .c1 { color: var(--k1) } .c2 { color: var(--k2) } .c3 { color: var(--k3) }
.c4 { color: var(--k4) } .c5 { color: var(--k5) } .c6 { color: var(--k6) } .c7 { color: var(--k7) }
.l { stroke: currentColor; stroke-width: 2; fill: none; stroke-linejoin: round; stroke-linecap: round }
.l.thin { stroke-width: 1.4 }
.m { fill: currentColor; stroke: none }
.m.hollow { fill: var(--paper); stroke: currentColor; stroke-width: .5 }
.m.stroke { fill: none; stroke: currentColor; stroke-width: .6 }
.ring { fill: none; stroke: currentColor; stroke-width: 1.6 }
.band { fill: currentColor; fill-opacity: .14; stroke: none }
.bar { fill: currentColor; stroke: var(--paper); stroke-width: .6 }
.texture { pointer-events: none }
.heat { fill: var(--heat) }
.cell { fill: none; stroke: var(--grid); stroke-width: .6 }
.pattern { stroke: var(--paper); stroke-width: 1.2; fill: none; stroke-opacity: .8 }
.pattern-dots { fill: var(--paper); fill-opacity: .8 }
.hatch-paper { stroke: var(--paper); stroke-width: 2.4; fill: none }
.hatch-ink { stroke: var(--ink); stroke-width: 1; fill: none }
.held { fill: currentColor; fill-opacity: .22; stroke: currentColor; stroke-width: 1.4 }
.flow { stroke: var(--quiet); stroke-width: 1.4; fill: none }
";

/// Paper.
const PRINT: &str = "@media print {
  @page { size: A4; margin: 14mm }
  body { font-size: 11px }
  main { max-width: none; padding: 0 }
  .charts { grid-template-columns: 1fr 1fr }
  .facts { grid-template-columns: repeat(4, 1fr) }
  .facts div { background: none; border: 1px solid var(--rule) }
  details:not(.folded), #stale { display: none }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; max-height: none; border: 1px solid var(--rule) }
  .wide { overflow: visible; max-height: none }
  table { font-size: 10px }
  th, td { white-space: normal; overflow-wrap: anywhere; padding-right: .5rem }
  td.number:last-child { white-space: normal }
  h2 { break-after: avoid }
}
";

/// Textures, which the charts of a document share.
pub(super) const PATTERNS: &str = r#"<svg width="0" height="0" style="position:absolute" aria-hidden="true" focusable="false"><defs>
<pattern id="p1" width="6" height="6" patternUnits="userSpaceOnUse"><path class="pattern" d="M-1,7 L7,-1 M-1,1 L1,-1 M5,7 L7,5"/></pattern>
<pattern id="p2" width="5" height="5" patternUnits="userSpaceOnUse"><circle class="pattern-dots" cx="2.5" cy="2.5" r="1.1"/></pattern>
<pattern id="p3" width="6" height="6" patternUnits="userSpaceOnUse"><path class="pattern" d="M0,3 H6"/></pattern>
<pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse"><path class="hatch-paper" d="M-1,9 L9,-1 M-1,1 L1,-1 M7,9 L9,7"/><path class="hatch-ink" d="M-1,9 L9,-1 M-1,1 L1,-1 M7,9 L9,7"/></pattern>
</defs></svg>
"#;

/// The texture over a layer, another for neighbours.
pub(super) fn texture(place: usize) -> Option<&'static str> {
    [None, Some("p1"), Some("p2"), Some("p3")][place % 4]
}
