# SPDX-License-Identifier: Apache-2.0
"""Volume, every byte checked by its position: tests/e2e/loadgen.c on both sides (nghttp2)."""
import json
import random
import signal
import time

from peers.harness import SANITIZED, SCALE, case, check
from peers.load import Executors, Fetch, WINDOWS_2G, WINDOWS_5M, WINDOWS_64K
from peers.proxy import DATAPATH, NAIVE

CLIENT_INFLIGHT = 4 * 2**20
STOPPED = 20
RSS_BOUND = STOPPED * CLIENT_INFLIGHT + 64 * 2**20


def scaled(count, least=1):
    return max(least, round(count * SCALE))


def check_datapath(p, promotable):
    """Which datapaths carried streams; a kernel datapath that was asked for must have been used."""
    if NAIVE:
        return "naive"
    p.wait_idle()
    used = sorted({r["datapath"] for r in p.stream_lines()})
    check(DATAPATH in ("relay", "auto") or not promotable or DATAPATH in used, "streams went by %s", used)
    return " and ".join(used)


def one_stream(windows):
    def run(t):
        x, p = Executors(t), t.proxy()
        speed = Fetch(t, p, x, *windows, size=scaled(3e9)).check_all_right(1)
        return f"{speed}, {check_datapath(p, windows is not WINDOWS_64K)}"
    return run


def many_streams(windows):
    def run(t):
        x, p = Executors(t, 3), t.proxy()
        return Fetch(t, p, x, "-n", 100, "-m", 100, "-S", 7, *windows, size=f"0-{scaled(30e6)}").check_all_right(100)
    return run


for label, windows_ in (("64k", WINDOWS_64K), ("5m", WINDOWS_5M)):
    case(f"volume/3-gb-on-one-stream-{label}", naive="pass", limit=150)(one_stream(windows_))
    case(f"volume/100-streams-of-3-executors-{label}", limit=150)(many_streams(windows_))


@case("volume/unread-stream-beside-siblings", naive="pass", limit=120)
def _(t):
    """The first of ten streams is not read until the other nine, 100 MB each, are done."""
    x, p = Executors(t), t.proxy()
    return Fetch(t, p, x, "-n", 10, "-m", 10, "-u", "-w", 65535, "-W", 2**30, size=scaled(100e6)).check_all_right(10)


@case("volume/many-clients", naive="pass", limit=120)
def _(t):
    """50 connections at once, each with streams one after another."""
    x, p = Executors(t, 1), t.proxy()
    return Fetch(t, p, x, "-n", 500, "-j", 50, "-S", 3, *WINDOWS_5M, size=f"0-{scaled(6e6)}").check_all_right(500)


def settle(p, seconds=30):
    """Waits until nothing has come from executors for a second."""
    end = time.monotonic() + seconds
    last, since = -1, time.monotonic()
    while time.monotonic() < end and time.monotonic() < since + 1:
        now = p.metric("executor_data_bytes")
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(0.05)


def stopped_readers(how, windows):
    def run(t):
        x = Executors(t)
        p = t.proxy("--client-inflight", str(CLIENT_INFLIGHT), "--client-timeout", "10m")
        before = p.rss()
        f = Fetch(t, p, x, "-n", STOPPED, "-j", STOPPED, how, 1_000_000, "-r", 1, *windows, size=scaled(1e9))
        f.wait_stopped()
        settle(p)
        rss, granted, held = p.rss(), p.metric("granted_bytes"), p.metric("held_bytes")
        # Nothing that they hold up keeps anybody else waiting.
        other = Fetch(t, p, x, "-n", 20, "-j", 4, *WINDOWS_5M, size=scaled(50e6), seconds=30).check_all_right(20)
        check(granted + held <= STOPPED * CLIENT_INFLIGHT, "granted %d + held %d bytes", granted, held)
        if not SANITIZED:
            check(rss <= RSS_BOUND, "resident %d bytes with %d stopped readers, bound %d", rss, STOPPED, RSS_BOUND)
        f.resume()
        r = f.result()
        check(r["ok"] == 1 and r["abandoned"] == STOPPED - 1 and not r["failed"], "resumed reader: %s", r)
        return (f"resident {before / 2**20:.1f} -> {rss / 2**20:.1f} MiB (bound {RSS_BOUND / 2**20:.0f}), "
                f"granted {granted / 2**20:.1f}, held {held / 2**20:.1f} MiB; beside them {other}")
    return run


case("volume/20-clients-stop-reading", limit=150)(stopped_readers("-s", WINDOWS_2G))
case("volume/20-clients-stop-granting", limit=150)(stopped_readers("-g", WINDOWS_5M))


def available():
    """Memory of the machine that is not in use, bytes."""
    with open("/proc/meminfo") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("MemAvailable"))


@case("volume/500-clients-stop-reading", limit=200)
def _(t):
    """
    500 clients with endless windows stop in the middle of a large result, spliced where there is a
    splice: what the kernel and the proxy hold for them is bounded by --client-inflight, and another
    client is served.
    """
    count, inflight, stop = 500, 2**20, 5_000_000
    x, p = Executors(t), t.proxy("--client-inflight", str(inflight), "--client-timeout", "10m", "--log-level", "info")
    free = available()
    f = Fetch(t, p, x, "-n", count, "-j", count, "-s", stop, "-r", 3, "-B", 32768, "-w", 2**20, "-W", 2**30,
              size=scaled(50e6, 20_000_000), seconds=150)
    f.wait_stopped()
    settle(p)
    used, rss = free - available(), p.rss()
    spliced = sum(s["datapath"] == "sockmap" for s in json.loads(p.get("/streams")[1])["streams"])
    check(DATAPATH != "sockmap" or spliced >= 0.9 * count, "only %d of %d are spliced", spliced, count)
    other = Fetch(t, p, x, "-n", 8, "-j", 2, *WINDOWS_5M, size=scaled(20e6), seconds=30).check_all_right(8)
    bound = 2 * count * inflight + 200 * 2**20
    check(used < bound, "%d MiB in use for %d stopped clients, bound %d", used >> 20, count, bound >> 20)
    f.resume()
    r = f.result()
    check(r["ok"] == 3 and r["abandoned"] == count - 3 and not r["failed"], "resumed readers: %s", r)
    return (f"{spliced} spliced; {used >> 20} MiB of the machine in use (bound {bound >> 20}), {rss >> 20} MiB of them "
            f"by the process; beside them {other}")


@case("volume/10000-connections", limit=200)
def _(t):
    """Connect, fetch, close: what is open before is open after, and every byte is accounted for."""
    x, p = Executors(t, 3), t.proxy()
    before = p.descriptors()
    count = scaled(10000, 500)
    speed = Fetch(t, p, x, "-n", count, "-1", "-j", 8, "-S", 5, size="0-3000", seconds=150).check_all_right(count)
    p.wait_idle()
    # Connections to executors in use are kept for the next client, and only those.
    p.wait(lambda: p.metric("upstreams") == p.metric("upstreams_idle"), "no upstream but idle ones")
    pool = p.metric("upstreams")
    check(pool <= 100, "%d idle connections to 3 executors after 8 clients at a time", pool)
    check(p.metric("streams_opened") == count, "streams opened: %d", p.metric("streams_opened"))
    check(p.metric("dropped_data_bytes") == 0, "dropped %d bytes", p.metric("dropped_data_bytes"))
    check(p.metric("granted_bytes") == 0 and p.metric("held_bytes") == 0, "credit left over")
    x.process.kill()
    p.wait(lambda: p.metric("upstreams") == 0, "no upstream to executors that are gone")
    p.wait(lambda: p.descriptors() <= before, f"as many descriptors as before ({before}, not {p.descriptors()})")
    return f"{count} connections, {speed}; {pool:.0f} kept; {before} descriptors before and {p.descriptors()} after"


@case("volume/clients-killed-at-full-rate", limit=120)
def _(t):
    """Clients die by SIGKILL at random moments under full load; another client's stream is right to the byte."""
    rnd = random.Random(11)
    x, p = Executors(t, 2), t.proxy()
    good = Fetch(t, p, x, "-n", 4, "-m", 2, "-j", 1, *WINDOWS_5M, size=scaled(1e9))
    killed = 0
    while good.process.poll() is None and killed < 200:
        f = Fetch(t, p, x, "-n", 100, "-j", 4, "-m", 3, *WINDOWS_5M, size=scaled(1e9))
        time.sleep(rnd.uniform(0.005, 0.15))
        f.process.send_signal(signal.SIGKILL)
        f.process.wait()
        killed += 1
    return f"{killed} killed; {good.check_all_right(4)}"


@case("volume/executors-killed-at-full-rate", limit=120)
def _(t):
    """An executor's process dies again and again; the streams of another on the same connections are right."""
    stable, p = Executors(t), t.proxy()
    good = Fetch(t, p, stable, "-n", 4, "-m", 2, *WINDOWS_5M, size=scaled(1e9))
    ended = 0
    while good.process.poll() is None and ended < 50:
        dying = Executors(t)
        both = type("Both", (), {"addresses": stable.addresses + dying.addresses})
        f = Fetch(t, p, both, "-n", 4, "-m", 4, *WINDOWS_5M, size=scaled(100e6), seconds=20)
        time.sleep(0.02)
        dying.process.send_signal(signal.SIGKILL)
        r = f.result()
        check(r["ok"] + r["failed"] == 4 and r["ok"] >= 2, "of 4 streams, 2 of them of the stable executor: %s", r)
        check(not r["failed"] or "grpc-status 2" in r["error"] or DATAPATH != "relay", "told: %s", r["error"])
        check("wrong byte" not in r["error"], "%s", r["error"])
        ended += 1
    return f"{ended} killed; {good.check_all_right(4)}"
