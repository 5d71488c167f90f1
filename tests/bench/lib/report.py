# SPDX-License-Identifier: Apache-2.0
"""Figures of many runs to tables."""


def median(values):
    v = sorted(values)
    n = len(v)
    return (v[n // 2] + v[(n - 1) // 2]) / 2 if n else None


def summarize(runs):
    """Medians of one peer under one load. None when no run delivered anything."""
    good = [r for r in runs if r["bytes"]]
    if not good:
        return None
    keys = ("gbps", "fps", "first_p50", "first_p99", "machine_gb", "proxy_gb", "machine_fetch", "proxy_fetch")
    s = {k: median([r[k] for r in good]) for k in keys}
    s["gbps_min"] = min(r["gbps"] for r in good)
    s["gbps_max"] = max(r["gbps"] for r in good)
    for k in ("machine_gb", "machine_fetch"):
        s[f"{k}_min"] = min(r[k] for r in good)
    s["failed"] = sum(r["failed"] for r in runs)
    return s


def ratio(a, b, key):
    if not a or not b or not b[key]:
        return "-"
    return f"{a[key] / b[key]:.2f}"


def markdown(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(r) + " |" for r in rows]) + "\n"


def bulk_table(peers, s):
    head = ["peer", "GB/s (min-max)", "machine CPU s/GB (min)", "proxy CPU s/GB", "first byte p50 / p99 µs",
            "failed", "GB/s × nginx", "CPU × nginx", "GB/s × HAProxy", "CPU × HAProxy"]
    rows = []
    for p in peers:
        v = s[p]
        if not v:
            rows.append([p, "nothing delivered"] + ["-"] * 8)
            continue
        rows.append([p, f"{v['gbps']:.2f} ({v['gbps_min']:.2f}-{v['gbps_max']:.2f})",
                     f"{v['machine_gb']:.3f} ({v['machine_gb_min']:.3f})", f"{v['proxy_gb']:.3f}", f"{v['first_p50']:.0f} / {v['first_p99']:.0f}", str(v["failed"])]
                    + [ratio(v, s.get(n), k) for n in ("nginx", "haproxy") for k in ("gbps", "machine_gb")])
    return markdown(head, rows)


def small_table(peers, s):
    head = ["peer", "fetches/s", "first byte p50 / p99 µs", "machine CPU µs/fetch (min)", "proxy CPU µs/fetch",
            "failed", "p50 × nginx", "CPU × nginx", "p50 × HAProxy", "CPU × HAProxy"]
    rows = []
    for p in peers:
        v = s[p]
        if not v:
            rows.append([p, "nothing delivered"] + ["-"] * 8)
            continue
        rows.append([p, f"{v['fps']:.0f}", f"{v['first_p50']:.0f} / {v['first_p99']:.0f}",
                     f"{v['machine_fetch']:.0f} ({v['machine_fetch_min']:.0f})", f"{v['proxy_fetch']:.0f}", str(v["failed"])]
                    + [ratio(v, s.get(n), k) for n in ("nginx", "haproxy") for k in ("first_p50", "machine_fetch")])
    return markdown(head, rows)


def targets_of(load, s):
    """[(what, key, limit, 'min' or 'max')] that a flightsplice column has to reach under a load."""
    nginx, haproxy = s.get("nginx"), s.get("haproxy")
    if load in ("1c", "4c") and nginx:
        return [("GB/s >= 1.3 × nginx", "gbps", 1.3 * nginx["gbps"], "min"),
                ("machine CPU s/GB <= 0.8 × nginx", "machine_gb", 0.8 * nginx["machine_gb"], "max")]
    if load in ("1k", "1k4") and haproxy:
        return [("first byte p50 <= HAProxy", "first_p50", haproxy["first_p50"], "max"),
                ("machine CPU µs/fetch <= HAProxy", "machine_fetch", haproxy["machine_fetch"], "max")]
    if load in ("64k", "8s"):
        best = [s[n]["gbps"] for n in ("nginx", "haproxy", "envoy") if s.get(n)]
        if best:
            return [("GB/s >= best of nginx, HAProxy, Envoy", "gbps", max(best), "min")]
    return []


def targets_table(summaries, ours):
    rows = []
    for load, s in summaries.items():
        for what, key, limit, kind in targets_of(load, s):
            for p in ours:
                if not s.get(p):
                    continue
                value = s[p][key]
                reached = value >= limit if kind == "min" else value <= limit
                digits = 0 if key in ("first_p50", "machine_fetch") else 3 if key == "machine_gb" else 2
                rows.append([p, load, what, f"{value:.{digits}f}", f"{limit:.{digits}f}",
                             "reached" if reached else "**missed**"])
    if not rows:
        return ""
    return "\n## Targets\n\n" + markdown(["column", "load", "target", "figure", "limit", ""], rows)
