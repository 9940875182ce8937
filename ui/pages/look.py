"""How the pages look: colours for light and dark, and the few lines of script that they share.

Everything that a cluster says is set as text: by Vue or, in charts, by `html.escape`.
"""

from __future__ import annotations

SPOUT, CALM, WARM, HOT, IDLE = "#2563a8", "#0f766e", "#b45309", "#b91c1c", "#64748b"
"""Fills of components: white text can be read on each."""
PRIMARY = "#0b5cad"
ERROR, FAULT, AXIS = "#e11d48", "#9333ea", "#7b8794"
LINES = {
    "emitted": "#3b82f6", "acked": "#10a37f", "failed": ERROR, "pending": "#d97706", "p50": "#10a37f", "p99": FAULT,
}
BUSY, ALMOST = 0.8, 0.5
"""Capacities from which a component is what the others wait for, or will soon be."""

HEAD = """
<style>
:root{--sq-bg:#f5f7fa;--sq-card:#fff;--sq-line:#dfe4ea;--sq-text:#17212b;--sq-soft:#566472;--sq-link:#0b5cad;
--sq-bad:#b91c1c;--sq-warn:#92500a;--sq-good:#0b6b4f;--sq-tint:#eef2f7;--sq-shade:#17212b59}
body.body--dark{--sq-bg:#0f141a;--sq-card:#171e26;--sq-line:#2b3641;--sq-text:#e6ebf0;--sq-soft:#9aa8b5;
--sq-link:#7db8f5;--sq-bad:#ff8a8a;--sq-warn:#f3b562;--sq-good:#5fd3a8;--sq-tint:#1f2933;--sq-shade:#e6ebf066}
body{background:var(--sq-bg)!important;color:var(--sq-text);font-family:system-ui,-apple-system,"Segoe UI",sans-serif}
.nicegui-content{padding:0!important;width:100%}
.sq-page{width:100%;max-width:1440px;margin:0 auto;padding:16px;display:flex;flex-direction:column;gap:16px;min-width:0}
.sq-head{background:var(--sq-card)!important;color:var(--sq-text)!important;border-bottom:1px solid var(--sq-line);
padding:6px 16px;display:flex;gap:4px 12px;align-items:center;flex-wrap:wrap;box-shadow:none}
.sq-crumbs{display:flex;gap:8px;align-items:center;min-width:0;flex:1 1 auto;font-weight:600}
.sq-crumbs>*{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;max-width:100%}
.sq-brand{font-weight:800;letter-spacing:.02em}
a,.sq-link{color:var(--sq-link);text-decoration:none;font-weight:600}a:hover{text-decoration:underline}
:focus-visible{outline:3px solid var(--sq-link)!important;outline-offset:2px;border-radius:4px}
.q-btn:focus-visible,.q-tab:focus-visible{box-shadow:inset 0 0 0 3px var(--sq-link)!important}
.sq-card{background:var(--sq-card);border:1px solid var(--sq-line);border-radius:10px;padding:14px 16px;min-width:0;
width:100%;display:block}
.sq-card h2{font-size:1rem;line-height:1.4;font-weight:700;margin:0 0 8px}
h1{font-size:1.4rem;line-height:1.3;font-weight:800;margin:0;overflow-wrap:anywhere}
.sq-soft{color:var(--sq-soft);font-size:.875rem}.sq-bad{color:var(--sq-bad)}.sq-warn{color:var(--sq-warn)}
.sq-good{color:var(--sq-good)}
.sq-row{display:flex;gap:8px 12px;flex-wrap:wrap;align-items:center;min-width:0}
.sq-tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(128px,1fr));gap:10px;width:100%}
.sq-tile{background:var(--sq-card);border:1px solid var(--sq-line);border-radius:10px;padding:10px 12px;min-width:0}
.sq-tile .v{font-size:1.35rem;font-weight:700;font-variant-numeric:tabular-nums;line-height:1.3;white-space:nowrap;
overflow:hidden;text-overflow:ellipsis}
.sq-tile .u{color:var(--sq-soft);font-size:.77rem}
.sq-two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:16px;width:100%}
.sq-three{display:grid;grid-template-columns:repeat(3,minmax(0,1fr));gap:16px;width:100%}
.sq-table{width:100%;background:transparent!important;color:inherit;box-shadow:none}
.sq-table th{font-weight:600;color:var(--sq-soft);font-size:.78rem!important}
.sq-table td{font-size:.86rem!important;font-variant-numeric:tabular-nums}
.sq-table th,.sq-table td{padding:6px 10px!important;border-color:var(--sq-line)!important;height:auto!important}
.sq-table th:first-child,.sq-table td:first-child{position:sticky;left:0;background:var(--sq-card);z-index:1;
padding-left:2px!important;max-width:60vw}
.sq-table th:focus-visible{outline-offset:-3px}
.sq-table .q-table__middle{border-radius:0;background:linear-gradient(to left,var(--sq-card) 40%,transparent)
right/48px 100% no-repeat local,linear-gradient(to left,var(--sq-shade),transparent) right/16px 100% no-repeat scroll}
.sq-table .wrap{white-space:normal;min-width:220px;overflow-wrap:anywhere}.sq-two .wrap{min-width:80px}
.sq-card h2+.sq-soft{margin-bottom:8px}
.sq-chip{display:inline-block;border-radius:99px;padding:1px 10px;font-size:.8rem;font-weight:700;color:#fff}
.sq-pre{white-space:pre-wrap;overflow-wrap:anywhere;font:12.5px/1.5 ui-monospace,Menlo,Consolas,monospace;margin:0;
background:var(--sq-tint);padding:10px;border-radius:8px;max-height:60vh;overflow:auto}
.sq-scroll{overflow:auto;max-height:74vh;width:100%;border-radius:8px;background:var(--sq-tint)}
.sq-alert{border-left:4px solid var(--sq-warn);background:var(--sq-tint);padding:8px 12px;border-radius:6px;width:100%;
overflow-wrap:anywhere}.sq-alert.bad{border-color:var(--sq-bad)}.sq-alert.good{border-color:var(--sq-good)}
.sq-list{max-height:40vh;overflow:auto;width:100%}
.sq-key{display:inline-flex;align-items:center;gap:6px;font-size:.82rem;color:var(--sq-soft)}
.sq-key i{width:14px;height:14px;border-radius:4px;display:inline-block}
#sq-stale{position:fixed;left:0;right:0;bottom:0;z-index:9999;background:#92400e;color:#fff;padding:8px 16px;
text-align:center;font-weight:600}#sq-stale[hidden]{display:none}
.sq-lost .sq-age{display:none}
#popup{display:none!important}
.sq-btn{font-weight:600}.sq-btn.sq-link{color:var(--sq-link)}.sq-btn.sq-bad{color:var(--sq-bad)}
.q-btn-toggle .q-btn{padding:2px 12px!important}.sq-filter{max-width:280px;margin-bottom:6px}
.q-tab{text-transform:none!important}.q-btn{text-transform:none!important}
.q-field__label{color:var(--sq-soft)}
.q-table__bottom{color:var(--sq-soft);min-height:40px!important;border-color:var(--sq-line)!important}
@media (max-width:960px){.sq-three{grid-template-columns:minmax(0,1fr)}}
@media (max-width:600px){.sq-page{padding:10px;gap:10px}.sq-card{padding:12px}.sq-tiles{grid-template-columns:1fr 1fr}
.sq-orders{order:1}.sq-table th,.sq-table td{padding:6px 5px!important}.sq-table th,.sq-table td:first-child{
white-space:normal!important;overflow-wrap:break-word}.sq-table th:not(.sorted) .q-table__sort-icon{display:none}
.sq-table th{vertical-align:bottom}.sq-table td:first-child{min-width:100px}.sq-table .wrap{min-width:118px}}
@media (pointer:coarse){.sq-btn{min-height:42px}.sq-table td a{display:inline-block;padding:9px 0}}
@media (prefers-reduced-motion:reduce){*{transition:none!important;animation:none!important}}
</style>
<script>
document.addEventListener('visibilitychange',()=>window.emitEvent&&emitEvent('sq_shown',!document.hidden));
let lost=null;setInterval(()=>{const up=window.socket&&window.socket.connected&&window.did_handshake;
 if(up||!window.socket)lost=null;else if(lost===null)lost=Date.now();
 const bar=document.getElementById('sq-stale');if(!bar)return;
 const gone=lost!==null&&Date.now()-lost>3000;
 document.body.classList.toggle('sq-lost',gone);bar.hidden=!gone;
 if(gone)bar.textContent='This page shows the past: its server has not answered for '
  +Math.round((Date.now()-lost)/1000)+' s. It reconnects by itself.'},500);
</script>
"""
BODY = '<div id="sq-stale" role="status" aria-live="polite" hidden></div>'
