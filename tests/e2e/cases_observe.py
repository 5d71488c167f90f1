# SPDX-License-Identifier: Apache-2.0
"""What an operator's tools see: /metrics as Prometheus reads it, the other pages of the admin server, the
status page in a browser, health for gRPC clients, and what must not be in any of it."""
import json
import os
import re
import shutil
import subprocess
import time

from peers import proxy as proxy_module, wire
from peers.browser import Browser
from peers.executor import reply
from peers.harness import BUILD, Skip, case, check
from peers.link import Failed
from cases_board import check_kernel, name_of, on_bpffs
from cases_flow import MEGABYTE, WIDE
from cases_request import SMALL, check_clean


def promtool(*arguments, **options):
    path = shutil.which("promtool") or os.path.join(BUILD, "e2e", "promtool")
    if not os.access(path, os.X_OK):
        raise Skip("no promtool here, and the Debian package prometheus could not be fetched")
    return subprocess.run([path, *arguments], capture_output=True, text=True, timeout=60, **options)


def held_head(call):
    """An executor that answers the head and then nothing."""
    call.wait_request()
    call.head()
    call.wait_released(60)


def stalled(t, p, job="stalled"):
    """A stream whose client opens its window no further than 4000 bytes."""
    c = t.client(p, window=4000, conn_window=WIDE)
    s = c.get(t.executor(reply(MEGABYTE)), job=job, stage=3, partition=14)
    s.auto = False
    s.wait_bytes(4000)
    return s


# ---- /metrics


@case("observe/metrics-and-promtool")
def _(t):
    """Some of everything has happened; promtool has nothing to say."""
    p = t.proxy()
    x = t.executor(reply(SMALL))
    for _ in range(3):
        check_clean(t.client(p).get(x).wait_done(), SMALL)
    t.client(p).request(b"", path="/unknown/Method").wait_done()
    t.client(p).request(wire.ticket("169.254.169.254", 80)).wait_done()
    stalled(t, p)
    t.client(p).get(t.executor(held_head)).wait_head()
    status, text = p.get("/metrics")
    check(status == 200, "/metrics: %s", status)
    done = promtool("check", "metrics", input=text)
    check(done.returncode == 0 and not done.stderr, "promtool: %s", done.stderr or done.stdout)
    # And it would say something.
    bad = promtool("check", "metrics", input="# TYPE flightsplice_bad counter\nflightsplice_bad 1\n")
    check(bad.returncode != 0, "promtool accepts anything")
    return f"{len(text.splitlines())} lines"


@case("observe/metrics-add-up")
def _(t):
    """Each figure against what the case did."""
    p = t.proxy()
    x = t.executor(reply(SMALL))
    count = 7
    for i in range(count):
        c = t.client(p)
        check_clean(c.get(x, job=f"job-{i}").wait_done(), SMALL)
        c.close()
    p.wait_idle()
    m = p.metrics()

    def value(name, **labels):
        text = ",".join(f'{k}="{v}"' for k, v in labels.items())
        return m[f"flightsplice_{name}{{{text}}}" if text else f"flightsplice_{name}"]
    check(value("streams_ended_total", ended_by="complete") == count, "streams complete")
    check(value("streams_status_total", grpc_status="OK") == count, "streams with status OK")
    for name in ("stream_first_byte_seconds", "stream_duration_seconds"):
        check(value(f"{name}_count") == count, "%s_count is %s", name, value(f"{name}_count"))
        check(value(f"{name}_bucket", le="+Inf") == count, "%s_bucket", name)
        check(0 < value(f"{name}_sum") < 60 * count, "%s_sum is %s", name, value(f"{name}_sum"))
    check(value("stream_first_byte_seconds_sum") <= value("stream_duration_seconds_sum"), "first byte after the end")
    check(value("dial_results_total", result="connected") == value("dial_duration_seconds_count") > 0, "dials")
    check(value("policy_verdicts_total", verdict="allowed") == value("dials_total"), "verdicts")
    moved = sum(value("datapath_bytes_total", datapath=d, direction="to_client") for d in ("relay", "sockmap"))
    check(moved == value("client_data_bytes_total") == count * len(SMALL), "%s bytes to clients", moved)
    asked = value("datapath_bytes_total", datapath="relay", direction="to_executor")
    check(asked == sum(len(call.body) for call in x.calls), "%s bytes of requests", asked)
    check(sum(v for k, v in m.items() if k.startswith("flightsplice_worker_busy_seconds_total")) > 0, "busy workers")
    check(value("worker_turn_seconds_count") > count, "turns of the loops")
    check(all(v < 5 for k, v in m.items() if k.startswith("flightsplice_worker_lag_seconds")), "a worker lags")


@case("observe/metrics-waiting")
def _(t):
    """Streams by what they wait for, and back to nothing when they have ended."""
    p = t.proxy()

    def waiting(what):
        return p.metrics()[f'flightsplice_streams_waiting{{for="{what}"}}']
    s = stalled(t, p)
    slow = [t.client(p).get(t.executor(held_head)) for _ in range(2)]
    silent = t.client(p).get(t.executor(lambda call: call.wait_released(60)))
    half = t.client(p)
    half.request(end=False)
    p.wait(lambda: [waiting(w) for w in ("client_window", "executor_data", "executor_response", "client_request")]
           == [1, 2, 1, 1], "the gauges to show one, two, one and one")
    for stream in (s, silent, *slow):
        stream.rst()
    half.close()
    p.wait(lambda: p.metric("streams_waiting") == 0, "the gauges to be zero")


@case("observe/how-long-it-waits")
def _(t):
    """An executor that only answers PINGs: what is shown of the wait is not set back by each of them."""
    p = t.proxy("--stall-timeout", "300ms", "--client-timeout", "400ms")
    x = t.executor(held_head)
    s = t.client(p).get(x)
    s.wait_head()
    x.links[0].wait(lambda: sum(f.kind == wire.PING and not f.flags & wire.ACK for f in x.links[0].frames) >= 5,
                    "five PINGs")
    row, = json.loads(p.get("/streams")[1])["streams"]
    check(row["quiet_ms"] > 1200, "after five PINGs it has waited for %s ms", row["quiet_ms"])
    check(row["quiet_ms"] <= row["age_ms"], "it has waited for %s ms of %s", row["quiet_ms"], row["age_ms"])
    p.wait(lambda: p.metrics()['flightsplice_streams_stuck{for="executor_data"}'] == 1, "it to count as stuck", 20)
    s.rst()


# ---- the other pages


@case("observe/executors")
def _(t):
    p = t.proxy()
    s = stalled(t, p)
    x = t.executor(held_head)
    t.client(p).get(x).wait_head()
    status, text = p.get("/executors")
    check(status == 200, "/executors: %s %s", status, text)
    found = {e["executor"]: e for e in json.loads(text)["executors"]}
    slow, fast = found[name_of(x.address)], found[name_of(t.executors[0].address)]
    check((slow["streams"], slow["waiting_for_executor"], slow["waiting_for_client"]) == (1, 1, 0), "slow: %s", slow)
    check((fast["streams"], fast["waiting_for_executor"], fast["waiting_for_client"]) == (1, 0, 1), "stalled: %s", fast)
    check(fast["held_bytes"] > 0 and fast["bytes"] == 4000 and slow["granted_bytes"] > 0, "bytes: %s", found)
    s.rst()


@case("observe/no-secrets")
def _(t):
    """Trace context goes through and into the log; credentials and tickets go through and nowhere else."""
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    secrets = {"authorization": "Bearer hunter2-token", "cookie": "session=hunter2-cookie", "x-api-key": "hunter2-key"}
    p = t.proxy()
    x = t.executor(held_head)
    c = t.client(p)
    body = wire.message(wire.chunk(1, wire.action(*x.address, settings_=wire.chunk(4, b"hunter2-setting"))))
    s = c.request(body, metadata=[*secrets.items(), ("traceparent", trace), ("tracestate", "v=1")])
    s.wait_head()
    got = dict(x.calls[0].headers)
    for name, value in {**secrets, "traceparent": trace, "tracestate": "v=1"}.items():
        check(got.get(name) == value, "%s reached the executor as %s", name, got.get(name))
    check(b"hunter2-setting" in bytes(x.calls[0].body), "the ticket did not reach the executor whole")
    pages = {path: p.get(path)[1] for path in ("/metrics", "/streams", "/executors", "/config")}
    s.rst()
    p.wait(p.stream_lines, "the stream's log line")
    line, = p.stream_lines()
    check(line.get("traceparent") == trace, "the log line: %s", line)
    with open(p.log_path) as f:
        pages["the log"] = f.read()
    for where, text in pages.items():
        check("hunter2" not in text, "%s shows a secret", where)


# ---- grpc.health.v1, with grpcio's own client


def health_stub(t, p):
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    channel = grpc.insecure_channel(name_of(p.address), options=[("grpc.enable_http_proxy", 0)])
    t.stack.callback(channel.close)
    t.clients.append(channel)  # closed before the proxy has to be idle
    channel.violation = None
    return health_pb2_grpc.HealthStub(channel), health_pb2, grpc


@case("observe/health-check")
def _(t):
    p = t.proxy()
    stub, pb, grpc = health_stub(t, p)
    for service in ("", "arrow.flight.protocol.FlightService"):
        answer = stub.Check(pb.HealthCheckRequest(service=service), timeout=10)
        check(answer.status == pb.HealthCheckResponse.SERVING, "Check(%r): %s", service, answer)
    try:
        answer = stub.Check(pb.HealthCheckRequest(service="nobody.Knows"), timeout=10)
        raise Failed(f"Check of an unknown service answers {answer}")
    except grpc.RpcError as error:
        check(error.code() == grpc.StatusCode.NOT_FOUND, "Check of an unknown service: %s", error.code())


@case("observe/health-watch")
def _(t):
    """SERVING at once; the end of the stream, or NOT_SERVING, when the proxy drains."""
    p = t.proxy()
    stub, pb, grpc = health_stub(t, p)
    watch = stub.Watch(pb.HealthCheckRequest(), timeout=30)
    check(next(watch).status == pb.HealthCheckResponse.SERVING, "Watch does not begin with SERVING")
    p.signal(15)
    try:
        answer = next(watch)
        check(answer.status == pb.HealthCheckResponse.NOT_SERVING, "draining, Watch says %s", answer)
        told = "NOT_SERVING"
    except StopIteration:
        raise Failed("draining, Watch ends as if all was well") from None
    except grpc.RpcError as error:
        check(error.code() == grpc.StatusCode.UNAVAILABLE, "draining, Watch ends with %s", error.code())
        told = "UNAVAILABLE"
    check(p.wait_exit() == 0, "exit status %s", p.process.returncode)
    return told


# ---- the status page


def trickle(call):
    """Results as they come from a real query: in bursts."""
    call.wait_request()
    call.head()
    for _ in range(600):
        call.send(MEGABYTE)
        time.sleep(0.05 + call.index % 3 * 0.04)
    call.trailers(0)


def shown(b):
    return b.run("return document.body.innerText")


@case("observe/status-page", limit=180)
def _(t):
    """
    In a real browser: live figures, plot and tables; wide and on a phone; light and dark. It asks nobody but
    the proxy, and a job's name that is HTML is text.
    FLIGHTSPLICE_E2E_SCREENSHOT=FILE keeps a picture (docs/status-page.png).
    """
    b = Browser(t)
    flags = []
    if not os.geteuid():
        try:
            check_kernel()
            flags = ["--datapath", "sockmap", "--promote-after", "65536"]
        except Skip:
            pass
    p = t.proxy(*flags)
    url = f"http://{name_of(p.admin)}/"
    attack = "<img src=x onerror=document.title='owned'>"
    b.open(url)
    b.wait("return document.getElementById('state').textContent == 'ready'", "the page says ready")
    check("none in use" in shown(b) and "nothing" in shown(b), "an idle proxy shows %s", shown(b))

    busy = t.executor(trickle)
    windows = {"window": 2 * 2**20, "conn_window": 5 * 2**20}
    for i in range(5):
        t.client(p, **windows).get(busy, job=f"tpch-q{i + 3}", stage=4, partition=i)
    # Two executors at once: those stay on relay.
    both = t.client(p, **windows)
    both.get(busy, job="tpch-q21", stage=7, partition=0)
    both.get(t.executor(trickle), job="tpch-q21", stage=7, partition=1)
    small = t.executor(reply(SMALL))
    slow = t.client(p).get(t.executor(held_head), job="tpch-q17", stage=2, partition=9)
    stalled(t, p, job="notebook-3")
    evil = t.client(p).get(t.executor(held_head), job=attack)
    t.client(p).request(wire.ticket("169.254.169.254", 80)).wait_done()
    for _ in range(20):
        check_clean(t.client(p).get(small).wait_done(), SMALL)
    b.wait("return /MB\\/s|GB\\/s|kB\\/s/.test(document.getElementById('rate').textContent)", "a rate to clients")
    b.wait("return document.querySelectorAll('#streams tbody tr').length == 10", "ten streams in the table")
    b.wait("return [...document.querySelectorAll('#streams td')].some(e => /[kMG]B\\/s/.test(e.textContent))",
           "a stream's rate")
    text = shown(b)
    for what in ("tpch-q17 / 2 / 9", "notebook-3 / 3 / 14", "client window", "executor data", "up ", "workers",
                 "policy: link local or metadata address, 1 refused", attack):
        check(what in text, "the page does not show %r: %s", what, text)
    check(b.run("return document.title") == "flightsplice", "a job's name is run as a script")
    check(name_of(slow.client.sock.getpeername()) and name_of(t.executors[3].address) in text, "an executor is missing")
    b.wait("return document.querySelectorAll('#plot polygon').length == 2", "the plot")

    # What is stuck is said.
    b.wait("return /waited 10 s or more for executor data/.test(document.getElementById('attention').textContent)",
           "the stuck stream to be pointed out", 30)
    b.run("const f = document.getElementById('filter'); f.value = 'NOTEBOOK'; f.dispatchEvent(new Event('input'))")
    check(b.run("return document.querySelectorAll('#streams tbody tr').length") == 1, "the filter hides nothing")
    b.run("const f = document.getElementById('filter'); f.value = ''; f.dispatchEvent(new Event('input'))")
    b.run("document.getElementById('plot').dispatchEvent(new PointerEvent('pointermove', {clientX: "
          "document.getElementById('plot').getBoundingClientRect().right - 8, clientY: 0}))")
    check("relay" in b.run("return document.getElementById('at').textContent"), "the plot tells nothing to a pointer")
    b.run("document.getElementById('plot').dispatchEvent(new PointerEvent('pointerleave'))")
    evil.rst()

    # Light, dark, phone: nothing overflows, and text can be read.
    picture = os.environ.get("FLIGHTSPLICE_E2E_SCREENSHOT")
    seconds = 20 if picture else 0
    time.sleep(seconds)  # for a plot with something in it
    for scheme, (width, height) in (("light", (1280, 900)), ("dark", (1280, 900)), ("light", (390, 844)), ("dark", (390, 844))):
        b.colours(scheme)
        b.resize(width, height, mobile=width < 500)
        over = b.run("return document.documentElement.scrollWidth - innerWidth")
        check(over <= 0, "%s at %d: %d pixels too wide", scheme, width, over)
        ink, paper = b.run("const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]")
        check(contrast(ink, paper) > 7, "%s: %s on %s", scheme, ink, paper)
        check((luminance(paper) > 0.5) == (scheme == "light"), "%s has the paper %s", scheme, paper)
        b.screenshot(os.path.join(t.folder, f"status-{scheme}-{width}.png"))
    b.run("document.getElementById('streams').scrollIntoView()")
    b.screenshot(os.path.join(t.folder, "status-phone-streams.png"))
    if picture:
        shutil.copy(os.path.join(t.folder, "status-light-1280.png"), picture)
    foreign = [u for u in b.requests() if not u.startswith((url, "data:", "chrome:", "about:"))]
    check(not foreign, "it asks for %s", foreign)
    check(not b.complaints(), "the browser says %s", b.complaints())

    # Draining, and gone.
    for c in t.clients:
        c.close()
    p.wait(lambda: p.metric("streams") == 0, "all streams to be gone")
    b.wait("return document.querySelectorAll('#streams tbody tr').length == 0", "an empty table")
    p.stop()
    b.wait("return document.getElementById('state').textContent == 'no answer'", "the page says that nobody answers")


def luminance(colour):
    parts = [int(v) / 255 for v in re.findall(r"\d+", colour)[:3]]
    linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


# ---- what is in deploy/


def expressions_of_dashboard():
    """(panel's title, expression) of deploy/grafana-dashboard.json, its variables filled in."""
    with open("deploy/grafana-dashboard.json") as f:
        board = json.load(f)
    found = [(p["title"], target["expr"]) for p in board["panels"] for target in p.get("targets", [])]
    found += [(a["name"], a["expr"]) for a in board["annotations"]["list"]]
    return [(title, e.replace("$__rate_interval", "1m").replace("$job", "x").replace("$instance", "x")) for title, e in found]


def check_names(p, what, expressions):
    """Every metric, and every label's value, that an expression names is one that the proxy has."""
    m = p.metrics()
    names = {k.split("{")[0] for k in m} | {"up"}
    for title, e in expressions:
        used = set(re.findall(r"\b((?:flightsplice|process)_\w+|up)\b", e))
        check(used and used <= names, "%s: '%s' uses %s, which /metrics does not have", what, title, used - names)
        for name, labels in re.findall(r"(flightsplice_\w+)\{(.*?)\}", e):
            for label, value in re.findall(r'(\w+)=~?"([^"]*)"', labels):
                if label in ("job", "instance"):
                    continue
                have = {v for k in m if k.startswith(name + "{") for v in re.findall(rf'{label}="([^"]*)"', k)}
                check(any(re.fullmatch(value, v) for v in have), "%s: '%s' asks for %s=%s, there are %s", what, title,
                      label, value, sorted(have))


@case("observe/dashboard-and-alerts")
def _(t):
    """The rules pass promtool's check and their tests; dashboard and rules name metrics that exist."""
    for arguments in (("check", "rules", "deploy/alerts.yml"), ("test", "rules", "deploy/alerts_test.yml")):
        done = promtool(*arguments)
        check(done.returncode == 0, "promtool %s: %s", " ".join(arguments), done.stdout + done.stderr)
    with open("deploy/alerts.yml") as f:
        rules = f.read()
    alerts = re.findall(r"- alert: (\w+)\n(?: +#.*\n)?\s+expr: (?:\|\n((?: {10,}.*\n)+)|(.*)\n)", rules)
    check(len(alerts) == rules.count("- alert:") > 10, "%d alerts found", len(alerts))
    dashboard = expressions_of_dashboard()
    check(len(dashboard) > 30, "%d expressions in the dashboard", len(dashboard))
    # As recording rules, so that promtool parses them.
    path = os.path.join(t.folder, "dashboard.yml")
    with open(path, "w") as f:
        json.dump({"groups": [{"name": "dashboard", "rules": [{"record": f"x:y{i}", "expr": e}
                                                             for i, (_, e) in enumerate(dashboard)]}]}, f)
    done = promtool("check", "rules", path)
    check(done.returncode == 0, "the dashboard's expressions: %s", done.stdout + done.stderr)
    flags = []
    try:
        on_bpffs()
        check_kernel()
        flags = ["--datapath", "sockmap"]
    except Skip:
        dashboard = [(title, e) for title, e in dashboard if "_splice_" not in e and "_ring_" not in e]
        alerts = [a for a in alerts if "_splice_" not in a[1] + a[2] and "_ring_" not in a[1] + a[2] and "selftest" not in a[2]]
    p = t.proxy(*flags)
    alerts = [(name, (a or b).replace('result="fail"', 'result="pass"')) for name, a, b in alerts]
    check_names(p, "alerts.yml", alerts)
    check_names(p, "grafana-dashboard.json", dashboard)
    return f"{len(alerts)} alerts, {len(dashboard)} expressions"
