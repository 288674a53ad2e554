"""The look of the HTML page: one style sheet, light and dark.

Input: nothing. Output: text for a ``<style>`` element. Law: system fonts, no images, nothing from elsewhere.
"""

STYLE = """
:root{--paper:#fff;--ink:#1c1e21;--faint:#667;--line:#dde1e6;--soft:#f5f6f8;--accent:#2457c5;
--ok:#0a6b2b;--okb:#e3f4e8;--diagnosed:#8a5300;--diagnosedb:#fdf0d9;--failed:#a3151b;--failedb:#fde4e4;--bar:#5b8def}
@media(prefers-color-scheme:dark){:root{--paper:#14161a;--ink:#dfe3e8;--faint:#98a1ad;--line:#2e343c;--soft:#1c2026;
--accent:#8ab4ff;--ok:#7bd88f;--okb:#15301d;--diagnosed:#f0c068;--diagnosedb:#33270f;--failed:#ff8a8a;
--failedb:#3a1719;--bar:#4a78cf}}
*{box-sizing:border-box}
body{font:15px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:0 auto;max-width:70rem;
padding:1.5rem 1.25rem 4rem}
h1{font-size:1.5rem;margin:0}header p{margin:.3rem 0;color:var(--faint)}
h2{font-size:1.2rem;margin:2.5rem 0 .5rem}h2 small{font-weight:400;color:var(--faint);font-size:.85rem}
h3{font-size:1rem;margin:0 0 .6rem}
a{color:var(--accent);text-decoration:none}a:hover{text-decoration:underline}
.chip{display:inline-block;border-radius:1rem;padding:.05rem .6rem;font-size:.8rem;font-weight:600;margin-right:.4rem}
.chip.ok{color:var(--ok);background:var(--okb)}.chip.diagnosed{color:var(--diagnosed);background:var(--diagnosedb)}
.chip.failed{color:var(--failed);background:var(--failedb)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;margin:1rem 0;font-size:.92rem}
th{font-weight:600;color:var(--faint);font-size:.8rem;border-bottom:2px solid var(--line)}
td,th{padding:.4rem .7rem;text-align:left;white-space:nowrap}td{border-bottom:1px solid var(--line)}
tbody tr:hover{background:var(--soft)}
.number{text-align:right;font-variant-numeric:tabular-nums}
article{border:1px solid var(--line);border-radius:.5rem;padding:1rem 1.1rem;margin:.8rem 0}
article:target{border-color:var(--accent)}
pre{background:var(--soft);border-radius:.4rem;padding:.7rem .9rem;overflow-x:auto;margin:.5rem 0;
font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre.launch{white-space:pre-wrap}
pre i{font-style:normal}pre .c{color:var(--faint)}pre .s{color:var(--ok)}pre .k,pre .d{color:var(--accent)}
mark{background:var(--diagnosedb);color:inherit;display:inline-block;min-width:100%}
dl{display:flex;flex-wrap:wrap;gap:.4rem 1.8rem;margin:.2rem 0 .6rem}dt{color:var(--faint);font-size:.78rem}
dd{margin:0;font-weight:600;font-variant-numeric:tabular-nums}
.bars{columns:2 18rem;column-gap:2rem;margin:.5rem 0}
.bar{display:grid;grid-template-columns:4rem 1fr 3.2rem;gap:.6rem;align-items:center;font-size:.82rem;
break-inside:avoid;padding:.08rem 0}
.bar i{background:var(--soft);border-radius:.3rem;height:.65rem;overflow:hidden;display:block}
.bar b{background:var(--bar);display:block;height:100%}.bar span:last-child{text-align:right;color:var(--faint)}
.problem{border-left:3px solid var(--diagnosed);padding-left:.9rem;margin:.6rem 0}.problem p{margin:.3rem 0}
details{margin:.4rem 0}summary{cursor:pointer;color:var(--accent)}
p.note,footer{color:var(--faint);font-size:.88rem}footer{margin-top:1.5rem}
"""
