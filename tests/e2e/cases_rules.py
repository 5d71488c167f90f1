# SPDX-License-Identifier: Apache-2.0
"""
Executors that break HTTP/2: every rule of RFC 9113 that a server can break towards its client, each at
the points of a response where it makes a difference:

    first   instead of its SETTINGS
    head    a request has come, nothing has been answered
    body    the head and a little DATA have gone
    large   3 MB have gone: with a kernel datapath the pair has been promoted

What each case asserts: the client is told within a second, and nothing that could be taken for a complete
result; the executor is told which rule (the code of GOAWAY or RST_STREAM); a result of another executor
that is half delivered at that moment, on the same connection where the datapath allows it, comes whole; and
then, as after every case, that every byte is accounted for.

In the same way what looks odd and is legal is tried: there the result has to come whole.
"""
import struct

from peers import wire
from peers.harness import case, check, within
from peers.link import Failed
from peers.proxy import DATAPATH
from peers.rawexec import (CONTENT_TYPE, HEAD_BLOCK, STATUS_200, TRAILER_BLOCK, RawExecutor, data, head, headers,
                           literal, trailers)
from cases_flow import WIDE
from cases_request import SMALL, check_clean

P, FLOW, CLOSED, SIZE, COMPRESSION, CALM = 1, 3, 5, 6, 9, 11
ANY = None  # the rule is gRPC's: HTTP/2 has no code for it
LARGE = 3_000_000
PROMOTES = DATAPATH in ("sockmap", "packet", "auto")
FIRST, HEAD, BODY, BIG = "first", "head", "body", "large"


def raw_executor(t, script):
    x = RawExecutor(script)
    t.stack.callback(x.close)
    return x


class Neighbour:
    """Half a result of a well-behaved executor, whose other half comes when finish() is called."""

    def __init__(self, t, client):
        self.executor = t.executor(self.script)
        self.client = client
        self.stream = client.get(self.executor)
        self.stream.wait_bytes(len(SMALL))
        self.call = self.executor.wait_call()

    def script(self, call):
        call.wait_request()
        call.head()
        call.send(SMALL)

    def finish(self):
        self.call.send(SMALL)
        self.call.trailers(0)
        check_clean(self.stream.wait_done(), SMALL * 2)


def begin(conn, phase):
    """Brings the connection to the phase; returns the stream's number (1 before there is one)."""
    if phase == FIRST:
        return 1
    conn.start()
    number = conn.request()
    if phase == HEAD:
        return number
    conn.send(head(number))
    conn.data(number, 1000 if phase == BODY else LARGE)
    return number


class Rule:
    """make(number, conn) -> the bytes that break it. unread: the client has stopped reading then."""

    def __init__(self, name, codes, make, phases=(BODY, BIG), unread=False):
        self.name, self.make, self.phases, self.unread = name, make, phases, unread
        self.codes = codes if isinstance(codes, (tuple, type(None))) else (codes,)


def promoted(t, p):
    """The pair of the last client is in the kernel, if this run has a kernel."""
    if PROMOTES:
        p.wait(lambda: p.metric("promotions") >= 1, "a promotion")


def try_rule(t, p, rule, phase):
    def script(conn):
        number = begin(conn, phase)
        if phase == BIG:
            promoted(t, p)
        # In one segment with DATA that is legal, where there may be some.
        before = b""
        if phase in (BODY, BIG):
            conn.take(number, 100)
            before = data(number, bytes(100))
        if rule.unread:
            c.pause_reading()
        try:
            conn.send(before + rule.make(number, conn))
            conn.linger()
        finally:
            c.resume_reading()

    x = raw_executor(t, script)
    c = t.client(p, window=2**20, conn_window=WIDE)
    other = t.client(p) if phase == BIG and PROMOTES else c
    neighbour = Neighbour(t, other)
    s = c.get(x)
    conn = x.connection()
    try:
        s.wait_done(20)
    except Failed as error:
        raise Failed(f"{phase}: {error}; executor has {conn.frames[-3:]}") from None
    check(not x.errors, "%s: the script failed: %r", phase, x.errors[:1])
    if rule.unread and phase == BIG and PROMOTES and s.reset is None and not s.ended:
        # A kernel datapath has no back-pressure: it drops what is beyond its bound, and the client's
        # connection is reset, because a part of a frame is on it.
        check(c.closed == "reset", "%s: the client is told %s", phase, s.describe())
        neighbour.finish()
        return None
    check(not s.clean, "%s: the client takes it for a complete result: %s", phase, s.describe())
    check(s.status not in (None, 0) or s.reset not in (None, wire.NO_ERROR, wire.CANCEL), "%s: the client is told %s",
          phase, s.describe())
    if s.status is not None:
        check(s.status == 2 and s.message.startswith("flightsplice:"), "%s: the client is told %s", phase, s.describe())
    neighbour.finish()
    if rule.codes:
        conn.wait(lambda: told(conn) is not None or conn.closed, f"{phase}: an error code", within(2))
        check(told(conn) in rule.codes, "%s: the executor is told %s, not %s", phase, told(conn), rule.codes)
    other.close()
    c.close()
    return s


def told(conn):
    """The first error code that the executor got."""
    for f in conn.frames:
        if f.kind == wire.GOAWAY:
            return struct.unpack_from(">I", f.payload, 4)[0]
        if f.kind == wire.RST_STREAM:
            return struct.unpack(">I", f.payload)[0]
    return None


# ------------------------------------------------------------------------------------ the rules

def bytes_of(*pieces):
    return b"".join(pieces)


def settings(*pairs):
    return wire.frame(wire.SETTINGS, 0, 0, b"".join(struct.pack(">HI", k, v) for k, v in pairs))


def beyond_credit(number, conn):
    """More than any client's windows, bounds and buffers; the client has stopped reading."""
    return data(number, bytes(16384)) * 4096


def fixed(make):
    return lambda number, conn: make(number)


def literal_frame(content):
    return lambda number, conn: content


ALL = (HEAD, BODY, BIG)

FRAMES = [
    Rule("first-frame-is-ping", P, literal_frame(wire.frame(wire.PING, 0, 0, bytes(8))), (FIRST,)),
    Rule("first-frame-is-a-response", P, fixed(head), (FIRST,)),
    Rule("first-frame-is-goaway", P, literal_frame(wire.goaway(0)), (FIRST,)),
    Rule("speaks-http-1", (P, SIZE), literal_frame(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"), (FIRST,)),
    Rule("speaks-tls", (P, SIZE), literal_frame(b"\x15\x03\x03\x00\x02\x02\x46" + bytes(20)), (FIRST,)),
    Rule("data-too-long", SIZE, fixed(lambda n: data(n, bytes(16385)))),
    Rule("headers-too-long", SIZE, fixed(lambda n: headers(n, bytes(16385))), ALL),
    Rule("unknown-frame-too-long", SIZE, fixed(lambda n: wire.frame(0x77, 0, n, bytes(16385))), ALL),
    Rule("longest-frame", SIZE, fixed(lambda n: b"\xff\xff\xff" + data(n, b"")[3:] + bytes(5000)), ALL),
    Rule("settings-length", SIZE, literal_frame(wire.frame(wire.SETTINGS, 0, 0, bytes(5))), (FIRST, *ALL)),
    Rule("settings-ack-with-payload", SIZE, literal_frame(wire.frame(wire.SETTINGS, wire.ACK, 0, bytes(6)))),
    Rule("settings-on-a-stream", P, fixed(lambda n: wire.frame(wire.SETTINGS, 0, n, b"")), (FIRST, *ALL)),
    Rule("ping-length", SIZE, literal_frame(wire.frame(wire.PING, 0, 0, bytes(9)))),
    Rule("ping-on-a-stream", P, fixed(lambda n: wire.frame(wire.PING, 0, n, bytes(8)))),
    Rule("goaway-length", SIZE, literal_frame(wire.frame(wire.GOAWAY, 0, 0, bytes(7)))),
    Rule("goaway-on-a-stream", P, fixed(lambda n: wire.frame(wire.GOAWAY, 0, n, bytes(8)))),
    Rule("rst-length", SIZE, fixed(lambda n: wire.frame(wire.RST_STREAM, 0, n, bytes(5))), ALL),
    Rule("rst-on-the-connection", P, literal_frame(wire.rst_stream(0, 8)), ALL),
    Rule("rst-on-an-idle-stream", P, fixed(lambda n: wire.rst_stream(n + 1000, 8)), ALL),
    Rule("priority-length", SIZE, fixed(lambda n: wire.frame(wire.PRIORITY, 0, n, bytes(4))), ALL),
    Rule("priority-on-the-connection", P, literal_frame(wire.frame(wire.PRIORITY, 0, 0, bytes(5)))),
    Rule("window-update-length", SIZE, literal_frame(wire.frame(wire.WINDOW_UPDATE, 0, 0, bytes(3)))),
    Rule("window-update-of-0", P, literal_frame(wire.window_update(0, 0)), ALL),
    Rule("window-update-of-0-on-the-stream", P, fixed(lambda n: wire.window_update(n, 0)), ALL),
    Rule("window-update-overflow", FLOW, literal_frame(wire.window_update(0, 2**31 - 1)), ALL),
    Rule("window-update-overflow-on-the-stream", FLOW, fixed(lambda n: wire.window_update(n, 2**31 - 1)), ALL),
    Rule("window-update-on-an-idle-stream", P, fixed(lambda n: wire.window_update(n + 1000, 1)), ALL),
    Rule("data-on-the-connection", P, literal_frame(data(0, b"x")), ALL),
    Rule("data-on-an-even-stream", P, literal_frame(data(2, b"x")), ALL),
    Rule("data-on-an-idle-stream", P, fixed(lambda n: data(n + 1000, b"x")), ALL),
    Rule("data-beyond-the-credit", FLOW, beyond_credit, unread=True),
    Rule("data-with-too-much-padding", P, fixed(lambda n: data(n, b"\x0aabc", wire.PADDED))),
    Rule("data-with-padding-of-nothing", (P, SIZE), fixed(lambda n: data(n, b"", wire.PADDED))),
    Rule("data-before-the-head", P, fixed(lambda n: data(n, b"x")), (HEAD,)),
    Rule("empty-data-before-the-head", P, fixed(lambda n: data(n, b"")), (HEAD,)),
    Rule("headers-on-the-connection", P, literal_frame(headers(0, HEAD_BLOCK)), ALL),
    Rule("headers-on-an-even-stream", P, literal_frame(headers(2, HEAD_BLOCK)), ALL),
    Rule("headers-on-an-idle-stream", P, fixed(lambda n: headers(n + 1000, HEAD_BLOCK)), ALL),
    Rule("headers-with-too-much-padding", P, fixed(lambda n: headers(
        n, b"\xff" + TRAILER_BLOCK, wire.END_HEADERS | wire.PADDED | wire.END_STREAM)), ALL),
    Rule("headers-too-short-for-priority", SIZE, fixed(lambda n: headers(
        n, b"\0\0\0", wire.END_HEADERS | wire.PRIORITY_FLAG | wire.END_STREAM)), ALL),
    Rule("continuation-without-headers", P, fixed(lambda n: wire.frame(wire.CONTINUATION, wire.END_HEADERS, n, b"")), ALL),
    Rule("continuation-on-the-connection", P, literal_frame(wire.frame(wire.CONTINUATION, wire.END_HEADERS, 0, b"")), ALL),
    Rule("continuation-of-another-stream", P, fixed(lambda n: headers(n, TRAILER_BLOCK, wire.END_STREAM) + wire.frame(
        wire.CONTINUATION, wire.END_HEADERS, n + 2, b"")), ALL),
    Rule("block-interrupted-by-ping", P, fixed(lambda n: headers(n, TRAILER_BLOCK, wire.END_STREAM) + wire.frame(
        wire.PING, 0, 0, bytes(8))), ALL),
    Rule("block-interrupted-by-data", P, fixed(lambda n: headers(n, TRAILER_BLOCK, wire.END_STREAM) + data(n, b"x")), ALL),
    Rule("block-interrupted-by-unknown", P, fixed(lambda n: headers(n, TRAILER_BLOCK, wire.END_STREAM) + wire.frame(
        0x55, 0, n, b"x")), ALL),
    Rule("continuation-too-long", SIZE, fixed(lambda n: headers(n, TRAILER_BLOCK, wire.END_STREAM) + wire.frame(
        wire.CONTINUATION, wire.END_HEADERS, n, bytes(16385))), ALL),
    Rule("push-promise", P, fixed(lambda n: wire.frame(wire.PUSH, wire.END_HEADERS, n, b"\0\0\0\2" + HEAD_BLOCK)), ALL),
    Rule("setting-enable-push", P, literal_frame(settings((wire.ENABLE_PUSH, 1))), (FIRST, *ALL)),
    Rule("setting-enable-push-2", P, literal_frame(settings((wire.ENABLE_PUSH, 2))), (FIRST, BODY)),
    Rule("setting-window-too-large", FLOW, literal_frame(settings((wire.INITIAL_WINDOW_SIZE, 2**31))), (FIRST, *ALL)),
    Rule("setting-frame-size-too-small", P, literal_frame(settings((wire.MAX_FRAME_SIZE, 16383))), (FIRST, BODY)),
    Rule("setting-frame-size-too-large", P, literal_frame(settings((wire.MAX_FRAME_SIZE, 2**24))), (FIRST, BODY)),
    Rule("setting-makes-a-window-overflow", FLOW, fixed(lambda n: wire.window_update(n, 2**31 - 1 - 65535)
                                                        + settings((wire.INITIAL_WINDOW_SIZE, 2**20))), ALL),
]

EOS = b"\xff\xff\xff\xff"  # longer than 30 bits of ones


def end(block):
    return fixed(lambda n: trailers(n, TRAILER_BLOCK + block))


HPACK = [
    Rule("hpack-index-0", COMPRESSION, end(b"\x80"), ALL),
    Rule("hpack-index-62-of-an-empty-table", COMPRESSION, end(b"\xbe"), ALL),
    Rule("hpack-name-62-of-an-empty-table", COMPRESSION, end(b"\x0f\x2f\x01x"), ALL),
    Rule("hpack-index-far-away", COMPRESSION, end(b"\xff\xff\xff\xff\x07"), ALL),
    Rule("hpack-integer-without-end", COMPRESSION, end(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), ALL),
    Rule("hpack-literal-cut-off", COMPRESSION, end(b"\x00\x05ab"), ALL),
    Rule("hpack-huffman-padding-of-8-bits", COMPRESSION, end(b"\x00\x01a\x82\x1f\xff"), ALL),
    Rule("hpack-huffman-padded-with-0", COMPRESSION, end(b"\x00\x01a\x81\x18"), ALL),
    Rule("hpack-huffman-end-of-string", COMPRESSION, end(b"\x00\x01a\x84" + EOS), ALL),
    Rule("hpack-table-too-large", COMPRESSION, fixed(lambda n: trailers(n, b"\x3f\xe2\x1f" + TRAILER_BLOCK)), ALL),
    Rule("hpack-table-size-after-a-field", COMPRESSION, end(b"\x20"), ALL),
    Rule("hpack-garbage", COMPRESSION, fixed(lambda n: trailers(n, bytes(range(0x90, 0xff)) * 3)), ALL),
]


def response(*fields, block=b""):
    return fixed(lambda n: headers(n, b"".join(fields) + block))


MESSAGES = [
    Rule("head-without-status", P, response(CONTENT_TYPE), (HEAD,)),
    Rule("head-that-is-empty", P, response(), (HEAD,)),
    Rule("head-with-two-statuses", P, response(STATUS_200, STATUS_200, CONTENT_TYPE), (HEAD,)),
    Rule("head-with-a-status-that-is-no-number", P, response(literal(b":status", b"2x0"), CONTENT_TYPE), (HEAD,)),
    Rule("head-with-a-status-of-2-digits", P, response(literal(b":status", b"20"), CONTENT_TYPE), (HEAD,)),
    Rule("head-with-status-after-a-field", P, response(CONTENT_TYPE, STATUS_200), (HEAD,)),
    Rule("head-with-a-path", P, response(STATUS_200, literal(b":path", b"/"), CONTENT_TYPE), (HEAD,)),
    Rule("head-with-an-upper-case-name", P, response(HEAD_BLOCK, literal(b"X-Name", b"x")), (HEAD,)),
    Rule("head-with-an-empty-name", P, response(HEAD_BLOCK, literal(b"", b"x")), (HEAD,)),
    Rule("head-with-a-space-in-a-name", P, response(HEAD_BLOCK, literal(b"a b", b"x")), (HEAD,)),
    Rule("head-with-a-zero-byte-in-a-value", P, response(HEAD_BLOCK, literal(b"a", b"x\0y")), (HEAD,)),
    Rule("head-with-a-line-end-in-a-value", P, response(HEAD_BLOCK, literal(b"a", b"x\r\nset-cookie: y")), (HEAD,)),
    Rule("head-with-connection", P, response(HEAD_BLOCK, literal(b"connection", b"close")), (HEAD,)),
    Rule("head-with-transfer-encoding", P, response(HEAD_BLOCK, literal(b"transfer-encoding", b"chunked")), (HEAD,)),
    Rule("status-101", P, response(literal(b":status", b"101")), (HEAD,)),
    Rule("status-100-that-ends-the-stream", P, fixed(lambda n: trailers(n, literal(b":status", b"100"))), (HEAD,)),
    Rule("status-100-after-the-head", P, response(literal(b":status", b"100"))),
    Rule("second-head", P, response(HEAD_BLOCK)),
    Rule("trailers-that-do-not-end-the-stream", P, response(TRAILER_BLOCK)),
    Rule("trailers-with-a-status", P, fixed(lambda n: trailers(n, STATUS_200 + TRAILER_BLOCK))),
    Rule("trailers-with-an-upper-case-name", P, end(literal(b"X-Name", b"x"))),
    Rule("trailers-with-connection", P, end(literal(b"connection", b"close"))),
    Rule("trailers-without-grpc-status", ANY, fixed(lambda n: trailers(n, literal(b"x", b"y")))),
    Rule("trailers-that-are-empty", ANY, fixed(lambda n: trailers(n, b""))),
    Rule("end-of-stream-on-data", ANY, fixed(lambda n: data(n, b"", wire.END_STREAM))),
    Rule("end-of-stream-on-the-head", ANY, fixed(lambda n: trailers(n, HEAD_BLOCK)), (HEAD,)),
]


def add_rule(rule):
    @case("rules/" + rule.name)
    def _(t):
        p = t.proxy()
        ends = []
        for phase in rule.phases:
            s = try_rule(t, p, rule, phase)
            ends.append(f"{phase}: " + (s.message[14:] if s and s.status is not None else "reset"))
        return "; ".join(ends)


for rule in FRAMES + HPACK + MESSAGES:
    add_rule(rule)
