# SPDX-License-Identifier: Apache-2.0
"""What the proxy answers itself: bad tickets, refused and unreachable destinations, other methods, limits,
bytes that are not HTTP/2. Each row of the design's failure table with its exact code."""
import os
import socket
import subprocess
import threading
import time

from peers import wire
from peers.client import DO_GET
from peers.executor import reply
from peers.harness import case, check, check_time, ip, within
from peers.link import Failed
from cases_request import SMALL, check_clean


def told(stream, status, *words):
    """The stream ended with trailers of the proxy's own: this status, a message with these words."""
    check(stream.ended and stream.status == status, "wanted grpc-status %d, got %s", status, stream.describe())
    check(not stream.data, "%d bytes of DATA before the status", len(stream.data))
    check(dict(stream.headers).get(":status") == "200", "head was %s", stream.headers)
    check(dict(stream.headers).get("content-type", "").startswith("application/grpc"), "head was %s", stream.headers)
    check(stream.message.startswith("flightsplice:"), "message '%s'", stream.message)
    for word in words:
        check(word.lower() in stream.message.lower(), "message '%s' lacks '%s'", stream.message, word)


# ---- tickets: 3 INVALID_ARGUMENT, the field named


def part(host=b"127.0.0.1", port=1234):
    return wire.message(wire.chunk(1, wire.action(host, port)))


BAD_TICKETS = {
    "no-message": (b"", ["ticket"]),
    "empty-message": (wire.message(b""), ["ticket"]),
    "empty-ticket": (wire.message(wire.chunk(1, b"")), ["ticket"]),
    "not-protobuf": (wire.message(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), []),
    "action-not-protobuf": (wire.message(wire.chunk(1, b"\x1a\xff\xff\xff\xff\xff")), ["ticket"]),
    "another-action": (wire.message(wire.chunk(1, wire.chunk(2, b"x"))), ["fetch_partition"]),
    "no-host": (wire.message(wire.chunk(1, wire.action(None, 1234))), ["host"]),
    "empty-host": (part(b""), ["host"]),
    "host-with-a-slash": (part(b"127.0.0.1/x"), ["host"]),
    "host-with-a-nul": (part(b"127.0.0.1\0evil"), ["host"]),
    "host-with-a-newline": (part(b"127.0.0.1\n"), ["host"]),
    "host-not-utf-8": (part(b"\xff\xfe"), []),
    "host-of-300-bytes": (part(b"a" * 300), ["host"]),
    "host-with-a-port": (part(b"user@127.0.0.1"), ["host"]),
    "no-port": (wire.message(wire.chunk(1, wire.action("127.0.0.1", None))), ["port"]),
    "port-0": (part(port=0), ["port"]),
    "port-65536": (part(port=65536), ["port"]),
    "port-of-64-bits": (part(port=2**63 + 80), ["port"]),
    "message-cut-off": (part()[:-4], []),
    "prefix-cut-off": (part()[:3], []),
    "two-messages": (part() + part(), []),
    "byte-after-the-message": (part() + b"\0", []),
}


def bad_ticket(body, words):
    def run(t):
        x = t.executor(reply(SMALL))
        c = t.client(t.proxy())
        s = c.request(body).wait_done()
        told(s, 3, *words)
        check_clean(c.get(x).wait_done(), SMALL)
        check(len(x.calls) == 1, "the executor got %d requests", len(x.calls))
        return s.message
    return run


for name_, (body_, words_) in BAD_TICKETS.items():
    case(f"ticket/{name_}")(bad_ticket(body_, words_))


@case("ticket/compressed")
def _(t):
    s = t.client(t.proxy()).request(wire.message(wire.chunk(1, wire.action("127.0.0.1", 1)), compressed=1)).wait_done()
    check(s.status in (3, 12), "got %s", s.describe())
    told(s, s.status)


@case("ticket/oversized")
def _(t):
    """Refused when its length is announced: the client need not send it, and may never."""
    p = t.proxy("--max-ticket", "4KiB")
    c = t.client(p)
    s = c.request(wire.message(bytes(4097))[:20], end=False).wait_done()
    told(s, 3, "ticket")
    s = c.request(b"\0\x7f\xff\xff\xff", end=False).wait_done()
    told(s, 3, "ticket")
    x = t.executor(reply(SMALL))
    filler = wire.chunk(200, bytes(4096 - 100))
    check_clean(c.get(x, extra=filler).wait_done(), SMALL)


@case("ticket/end-stream-on-headers")
def _(t):
    c = t.client(t.proxy())
    with c.cond:
        s = c.request(b"", end=False, reshape=lambda fs: [wire.Frame(f.kind, f.flags | wire.END_STREAM, f.stream,
                                                                      f.payload) for f in fs])
    told(s.wait_done(), 3, "ticket")


# ---- destinations: 7 PERMISSION_DENIED by policy, 2 UNKNOWN when unreachable


def one(t, proxy, host, port, seconds=None):
    s = t.client(proxy).request(wire.ticket(host, port))
    return s.wait_done(seconds or within(3))


@case("policy/loopback-is-denied-by-default")
def _(t):
    x = t.executor(reply(SMALL))
    p = t.proxy(loopback=False)
    for host in ("127.0.0.1", "localhost", "::1", "[::1]", "0.0.0.0", "::", "::ffff:127.0.0.1", "127.1.2.3"):
        s = one(t, p, host, x.address[1])
        check(s.status in (7, 3) if host == "localhost" else s.status == 7, "%s: %s", host, s.describe())
        told(s, s.status)
    check(not x.links, "the executor was connected to")


@case("policy/never-allowed", namespace=True)
def _(t):
    """Metadata services, link-local, multicast, reserved: not even with --allow-loopback."""
    p = t.proxy()
    for host in ("169.254.169.254", "169.254.1.1", "fe80::1", "224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1",
                 "fd00:ec2::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "0.1.2.3"):
        s = one(t, p, host, 80)
        told(s, 7)


@case("policy/own-listener")
def _(t):
    p = t.proxy()
    told(one(t, p, "127.0.0.1", p.address[1]), 7)


@case("policy/allow-cidr")
def _(t):
    x = t.executor(reply(SMALL))
    y = t.executor(reply(SMALL), host="127.0.0.2")
    p = t.proxy("--allow-cidr", "127.0.0.2/32")
    check_clean(one(t, p, *y.address), SMALL)
    told(one(t, p, *x.address), 7)
    check(not x.links, "the executor was connected to")


@case("policy/allow-port")
def _(t):
    x, y = t.executor(reply(SMALL)), t.executor(reply(SMALL))
    p = t.proxy("--allow-port", str(x.address[1]))
    check_clean(one(t, p, *x.address), SMALL)
    told(one(t, p, *y.address), 7)
    check(not y.links, "the executor was connected to")


def refusing_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


@case("unreachable/refused")
def _(t):
    begin = time.monotonic()
    s = one(t, t.proxy(), "127.0.0.1", refusing_port())
    told(s, 2, "127.0.0.1", "refused")
    check_time(time.monotonic() - begin, within(1), "telling")


@case("unreachable/other-codes")
def _(t):
    """--unreachable-status."""
    for name, code in (("unknown", 2), ("unavailable", 14), ("internal", 13)):
        told(one(t, t.proxy("--unreachable-status", name), "127.0.0.1", refusing_port()), code)


@case("unreachable/others-unaffected")
def _(t):
    x = t.executor(reply(SMALL))
    c = t.client(t.proxy())
    port = refusing_port()
    streams = [(c.get(x), c.request(wire.ticket("127.0.0.1", port))) for _ in range(20)]
    for good, bad in streams:
        check_clean(good.wait_done(), SMALL)
        told(bad.wait_done(), 2)


@case("unreachable/black-hole", namespace=True)
def _(t):
    """An address that swallows everything: told when --connect-timeout is over, and again at once cancellable."""
    # A cable to nowhere: what goes out comes in at the other end, for a machine that is not there.
    ip("link", "add", "hole", "type", "veth", "peer", "name", "bottom")
    ip("link", "set", "bottom", "up")
    ip("link", "set", "hole", "up")
    ip("address", "add", "10.99.0.1/24", "dev", "hole")
    ip("neighbour", "add", "10.99.0.77", "lladdr", "02:00:00:00:00:77", "dev", "hole")
    p = t.proxy("--connect-timeout", "700ms")
    begin = time.monotonic()
    s = one(t, p, "10.99.0.77", 50051)
    took = time.monotonic() - begin
    told(s, 2, "10.99.0.77")
    check(0.65 < took, "took %.2f s of 0.7", took)
    check_time(took, 0.7 + within(1), "telling")
    c = t.client(p)
    s = c.request(wire.ticket("10.99.0.77", 50051))
    p.wait(lambda: p.metric("streams") == 1, "stream open")
    s.rst()
    p.wait(lambda: p.metric("streams") == 0, "cancelled while connecting", 0.5)
    return f"{took:.2f} s"


class NameServer:
    """A DNS server on 127.0.0.1:53 of the case's namespace: answers from a table, NXDOMAIN else."""

    def __init__(self, t, names):
        self.names = names  # {name: [addresses]}; None: no answer at all
        self.asked = []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))
        threading.Thread(target=self._serve, daemon=True).start()
        path = os.path.join(t.folder, "resolv.conf")
        with open(path, "w") as f:
            f.write("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        # Only in this case's mount namespace.
        subprocess.run(["mount", "--bind", path, "/etc/resolv.conf"], check=True)

    def _serve(self):
        while True:
            query, peer = self.socket.recvfrom(4096)
            labels, at = [], 12
            while query[at]:
                labels.append(query[at + 1:at + 1 + query[at]].decode())
                at += 1 + query[at]
            name, kind = ".".join(labels).lower(), int.from_bytes(query[at + 1:at + 3], "big")
            self.asked.append((name, kind))
            addresses = self.names.get(name, [])
            if addresses is None:
                continue
            family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
            found = [socket.inet_pton(family, a) for a in addresses if (":" in a) == (kind == 28)] if family else []
            code = 0 if addresses else 3
            answers = b"".join(b"\xc0\x0c" + query[at + 1:at + 5] + b"\0\0\0\0" + len(a).to_bytes(2, "big") + a
                               for a in found)
            self.socket.sendto(query[:2] + bytes([0x81, 0x80 | code]) + query[4:6] + len(found).to_bytes(2, "big")
                               + bytes(4) + query[12:at + 5] + answers, peer)


@case("names/unknown", namespace=True)
def _(t):
    NameServer(t, {})
    p = t.proxy()
    begin = time.monotonic()
    s = one(t, p, "no-such-executor.example", 50051)
    told(s, 2, "no-such-executor.example")
    check_time(time.monotonic() - begin, within(2), "telling")
    return s.message


@case("names/resolver-does-not-answer", namespace=True)
def _(t):
    """Inside --connect-timeout, whatever the resolver's own patience is; other streams go on meanwhile."""
    NameServer(t, {"slow.example": None})
    x = t.executor(reply(SMALL))
    p = t.proxy("--connect-timeout", "400ms")
    c = t.client(p)
    begin = time.monotonic()
    s = c.request(wire.ticket("slow.example", 50051))
    for _ in range(10):
        check_clean(c.get(x).wait_done(), SMALL)
    told(s.wait_done(within(2)), 2, "slow.example")
    took = s.done_at - begin
    check(0.35 < took, "took %.2f s of 0.4", took)
    check_time(took, 0.4 + within(0.8), "telling")


@case("names/checked-after-resolving", namespace=True)
def _(t):
    """A name that means a forbidden address is refused, with no word on whether it exists."""
    NameServer(t, {"metadata.example": ["169.254.169.254"], "local.example": ["127.0.0.1"], "exec.example": ["127.0.0.9"]})
    x = t.executor(reply(SMALL), host="127.0.0.9")
    p = t.proxy()
    told(one(t, p, "metadata.example", 80), 7)
    check_clean(one(t, p, "exec.example", x.address[1]), SMALL)
    q = t.proxy(loopback=False)
    told(one(t, q, "local.example", x.address[1]), 7)


@case("names/name-that-moves", naive="pass", namespace=True)
def _(t):
    """An executor that comes back under its name at another address is found there."""
    names = NameServer(t, {"exec.example": ["127.0.0.9"]})
    x = t.executor(reply(SMALL), host="127.0.0.9")
    p = t.proxy()
    check_clean(one(t, p, "exec.example", x.address[1]), SMALL)
    x.close()
    for link in x.links:
        link.close()
    y = t.executor(reply(SMALL * 2), host="127.0.0.10", port=x.address[1])
    names.names["exec.example"] = ["127.0.0.10"]
    check_clean(one(t, p, "exec.example", y.address[1]), SMALL * 2)


@case("names/second-address-works", naive="pass", namespace=True)
def _(t):
    """AAAA first, and nothing listens there: the IPv4 address is tried."""
    NameServer(t, {"dual.example": ["::1", "127.0.0.1"]})
    x = t.executor(reply(SMALL))
    check_clean(one(t, t.proxy(), "dual.example", x.address[1]), SMALL)


@case("names/ipv6-literals")
def _(t):
    """With and without brackets."""
    x = t.executor(reply(SMALL), host="::1")
    p = t.proxy(host="::1")
    for host in ("::1", "[::1]", "0:0:0:0:0:0:0:1"):
        check_clean(one(t, p, host, x.address[1]), SMALL)


# ---- methods


@case("method/unimplemented")
def _(t):
    """12 UNIMPLEMENTED for everything but DoGet and health, whatever comes with it."""
    flight = "/arrow.flight.protocol.FlightService/"
    paths = [flight + m for m in ("Handshake", "ListFlights", "GetFlightInfo", "PollFlightInfo", "GetSchema", "DoPut",
                                  "DoExchange", "ListActions", "doget", "DoGet/", "")]
    paths += ["/", "/x.y.Z/W", "/ballista.protobuf.SchedulerGrpc/PollWork", "/" + "p" * 3000]
    c = t.client(t.proxy())
    for path in paths:
        for body in (b"", wire.message(b"abc")):
            told(c.request(body, path=path).wait_done(), 12)
    transport = wire.message(wire.chunk(1, "IO_BLOCK_TRANSPORT") + wire.chunk(2, wire.action("127.0.0.1", 1)))
    told(c.request(transport, path=flight + "DoAction").wait_done(), 12, "DoAction")


@case("method/health")
def _(t):
    """grpc.health.v1.Health/Check answers SERVING."""
    c = t.client(t.proxy())
    for body in (wire.message(b""), wire.message(wire.chunk(1, "arrow.flight.protocol.FlightService"))):
        s = c.request(body, path="/grpc.health.v1.Health/Check").wait_done()
        check(s.clean and bytes(s.data) == wire.message(b"\x08\x01"), "%s: %s", body, s.describe())
    s = c.request(wire.message(wire.chunk(1, "no.such.Service")), path="/grpc.health.v1.Health/Check").wait_done()
    check(s.status == 5, "for an unknown service: %s", s.describe())


@case("method/not-a-grpc-request")
def _(t):
    """GET, missing content-type, missing :path and more: an answer or a reset, no hang, and the connection stays."""
    t.tolerate_violations = True  # an executor may mind what the proxy does not
    x = t.executor(reply(SMALL))
    c = t.client(t.proxy())
    base = [(":method", "POST"), (":scheme", "http"), (":path", DO_GET), (":authority", "a"),
            ("content-type", "application/grpc"), ("te", "trailers")]
    for change in ({":method": "GET"}, {"content-type": "text/html"}, {":path": None}, {":method": None},
                   {"content-type": None}, {":authority": None}, {":scheme": None}):
        head = [(k, change.get(k, v)) for k, v in base if change.get(k, v) is not None]
        s = c.request(wire.ticket(*x.address), headers=head).wait_done()
        check(not c.closed, "%s ended the connection: %s", change, s.describe())
    check_clean(c.get(x).wait_done(), SMALL)


# ---- limits


@case("limits/streams-of-a-client")
def _(t):
    """Over --max-streams: REFUSED_STREAM or 8, and the others go on."""
    def waiting(call):
        call.wait_request()
        call.link.wait(lambda: call.link.executor.go, "the case's permission", 20)
        reply(SMALL)(call)
    x = t.executor(waiting)
    x.go = False
    c = t.client(t.proxy("--max-streams", "5"))
    c.wait(lambda: c.frames, "SETTINGS")
    check(c.h2.remote_settings.max_concurrent_streams == 5, "MAX_CONCURRENT_STREAMS is %s",
          c.h2.remote_settings.max_concurrent_streams)
    c.h2.remote_settings._settings[wire.MAX_CONCURRENT_STREAMS][0] = 100  # this client does not listen
    streams = [c.get(x) for _ in range(8)]
    for s in streams[5:]:
        s.wait_done()
        check(s.reset == wire.REFUSED_STREAM or s.status == 8, "over the limit: %s", s.describe())
    x.go = True
    for link in x.links:
        with link.cond:
            link.cond.notify_all()
    for s in streams[:5]:
        check_clean(s.wait_done(), SMALL)
    check_clean(c.get(x).wait_done(), SMALL)


@case("limits/clients")
def _(t):
    """Over --max-clients a connection is refused at once; when one leaves there is room again."""
    x = t.executor(reply(SMALL))
    p = t.proxy("--max-clients", "4", "--workers", "1")
    clients = [t.client(p) for _ in range(4)]
    for c in clients:
        check_clean(c.get(x).wait_done(), SMALL)
    extra = t.client(p)
    extra.wait(lambda: extra.closed, "the fifth connection refused", within(1))
    clients[0].close()
    p.wait(lambda: p.metric("clients") == 3, "three clients")
    check_clean(t.client(p).get(x).wait_done(), SMALL)


# ---- not HTTP/2


def first_bytes(t, data, answers):
    p = t.proxy()
    before = len(p.log_lines())
    with socket.create_connection(p.address) as s:
        s.settimeout(within(1))
        s.sendall(data)
        got = b""
        try:
            while chunk := s.recv(4096):
                got += chunk
        except ConnectionResetError:
            pass
        except TimeoutError:
            raise Failed(f"neither answered nor closed; came: {got[:60]}") from None
    check(not got or any(got.startswith(a) for a in answers), "answer %s", got[:80])
    p.wait(lambda: p.metric("clients") == 0, "no client")
    lines = [r for r in p.log_lines()[before:] if r.get("level") in ("warn", "error")]
    check(len(lines) == 1, "wanted one line in the log, got %s", lines)
    return f"{got[:40]!r}, log: {lines[0].get('reason') or lines[0].get('msg')}"


@case("plain/http-1")
def _(t):
    return first_bytes(t, b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n", [b"HTTP/1.1 505"])


@case("plain/http-1-post")
def _(t):
    return first_bytes(t, b"POST /arrow.flight.protocol.FlightService/DoGet HTTP/1.1\r\nHost: here\r\nContent-Length: 0"
                       b"\r\n\r\n", [b"HTTP/1.1 505"])


@case("plain/tls")
def _(t):
    """A ClientHello on the port for plain text."""
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(507)
    return first_bytes(t, hello, [b"\x15\x03", b"HTTP/1.1 505"])


@case("plain/preface-broken-off")
def _(t):
    return first_bytes(t, wire.PREFACE[:-2] + b"xx" + bytes(20), [b"HTTP/1.1 505", b"\0\0"])
