"""Draws a transfer bench's JSON as SVG. usage: plot.py IN.json OUT.svg"""
import json, sys
import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "leasehold"
import matplotlib.pyplot as plt

with open(sys.argv[1]) as f:
    report = json.load(f)
rows = [r for r in report["rows"] if r["order"] == "scattered" and r.get("gb_s")]
PANELS = [
    ("memory of one host", ["memcpy", "memcpy_2_threads", "process_vm_readv", "shm_copy", "shm", "ucx", "nixl_read", "nixl_write"]),
    ("TCP on loopback", ["tcp_1", "tcp_2", "grpc_1", "grpc_2", "nixl_tcp_read", "nixl_tcp_write", "mooncake_read", "mooncake_write"]),
    ("TLS 1.3 on loopback", ["tls13_1", "tls13_2", "grpc_tls_1", "grpc_tls_2"]),
]
OURS = ("shm", "ucx", "grpc")


def size(n):
    return "%.3g %s" % ((n / 1024, "KiB") if n < 1 << 20 else (n / (1 << 20), "MiB"))


fig, axes = plt.subplots(len(PANELS), 1, figsize=(11, 12), constrained_layout=True)
for ax, (title, ways) in zip(axes, PANELS):
    sizes = sorted({r["page_bytes"] for r in rows if r["way"] in ways})
    ways = [w for w in ways if any(r["way"] == w for r in rows)]
    greys, blues = iter(plt.cm.Greys([0.3 + 0.08 * i for i in range(9)])), iter(plt.cm.Blues([0.5 + 0.12 * i for i in range(5)]))
    for i, way in enumerate(ways):
        mine = {r["page_bytes"]: r for r in rows if r["way"] == way}
        at = [k + (i - (len(ways) - 1) / 2) * 0.8 / len(ways) for k, s in enumerate(sizes) if s in mine]
        mine = [mine[s] for s in sizes if s in mine]
        high = [r["gb_s"] for r in mine]
        spread = [[r["gb_s"] - r["gb_s_min"] for r in mine], [r["gb_s_max"] - r["gb_s"] for r in mine]]
        ax.bar(at, high, 0.8 / len(ways), yerr=spread, error_kw={"lw": 0.6}, label=way, color=next(blues if way.startswith(OURS) else greys))
        proven = [(x, r["gb_s_verified"]) for x, r in zip(at, mine) if r.get("gb_s_verified")]
        if proven:
            ax.plot([x for x, _ in proven], [y for _, y in proven], "_", color="tab:orange", ms=9, mew=2)
    ax.set_xticks(range(len(sizes)), [size(s) for s in sizes])
    ax.set_title(title + ", scattered pages")
    ax.set_ylabel("GB/s (10^9)")
    ax.legend(fontsize=7, ncol=4)
m = report["machine"]
fig.suptitle("%s, %d cores, %s: median of %d runs, bars least to most, orange with proof" % (m["cpu"], m["cores"], m["kernel"], report["runs"]), fontsize=9)
fig.savefig(sys.argv[2], metadata={"Date": None})
