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

In the same way what looks odd and is legal is tried (odd/): there the result has to come whole.
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
    Rule("head-with-a-blank-behind-a-value", P, response(HEAD_BLOCK, literal(b"a", b"x ")), (HEAD,)),
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


# ------------------------------------------------------------------------- odd, and legal


def raw_number(frame, number):
    """The same frame with other bits where the stream's number is."""
    return frame[:5] + struct.pack(">I", number) + frame[9:]


def split(block, flags, number, size=1):
    """HEADERS and CONTINUATIONs of `size` bytes each, an empty one before each of them."""
    pieces = [block[i:i + size] for i in range(0, len(block), size)]
    out = wire.frame(wire.HEADERS, flags, number, pieces[0])
    for piece in pieces[1:-1]:
        out += wire.frame(wire.CONTINUATION, 0, number) + wire.frame(wire.CONTINUATION, 0, number, piece)
    return out + wire.frame(wire.CONTINUATION, wire.END_HEADERS, number, pieces[-1])


def paid(conn, number, content, flags):
    conn.take(number, len(content))
    return data(number, content, flags)


# name: (make(number, conn) -> bytes in the middle of DATA, what of it is content)
MIDDLE = {
    "unknown-frames": (lambda n, k: b"".join(wire.frame(kind, 0xff, s, b"x" * 20) for kind in (0xa, 0x10, 0xff)
                                             for s in (0, n, n + 2, 2)), 0),
    "priority-anywhere": (lambda n, k: b"".join(wire.frame(wire.PRIORITY, 0, s, struct.pack(">IB", n, 255))
                                                for s in (n, n + 100, 2)), 0),
    "empty-data": (lambda n, k: data(n, b"") * 50, 0),
    "padded-data": (lambda n, k: paid(k, n, b"\x07" + bytes(50) + bytes(7), wire.PADDED), 50),
    "data-of-padding-alone": (lambda n, k: paid(k, n, b"\xff" + bytes(255), wire.PADDED), 0),
    "data-with-unknown-flags": (lambda n, k: paid(k, n, bytes(9), 0xf6), 9),
    "settings-of-all-kinds": (lambda n, k: settings() + settings((0x99, 7), (wire.ENABLE_PUSH, 0), (wire.MAX_FRAME_SIZE, 2**24 - 1),
                                                               (wire.HEADER_TABLE_SIZE, 2**32 - 1))
                              + settings((wire.INITIAL_WINDOW_SIZE, 0)) + settings((wire.INITIAL_WINDOW_SIZE, 2**31 - 1)), 0),
    "acks-of-nothing": (lambda n, k: wire.frame(wire.SETTINGS, wire.ACK, 0) + wire.frame(wire.PING, wire.ACK, 0, b"whatever"), 0),
    "reserved-bits": (lambda n, k: raw_number(wire.frame(wire.PING, 0, 0, b"reserved"), 2**31)
                      + raw_number(data(n, b""), n | 2**31) + wire.frame(wire.WINDOW_UPDATE, 0, n, b"\x80\0\0\1"), 0),
    "window-updates": (lambda n, k: wire.window_update(0, 1) + wire.window_update(n, 1000), 0),
    "goaway-twice-with-words": (lambda n, k: wire.goaway(wire.STREAM_MAX, debug=bytes(9000)) + wire.goaway(n, debug=b"bye"), 0),
}
HUFFMAN_STATUS = b"\x00\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f\x010"  # grpc-status: 0
# name: (head(number) -> bytes, trailers(number) -> bytes)
BLOCKS = {
    "informational-heads": (lambda n: headers(n, literal(b":status", b"103") + literal(b"link", b"x")) * 20
                            + headers(n, literal(b":status", b"100")) + head(n), trailers),
    "head-and-trailers-in-pieces": (lambda n: split(HEAD_BLOCK, 0, n), lambda n: split(TRAILER_BLOCK, wire.END_STREAM, n)),
    "padded-blocks-with-priority": (
        lambda n: headers(n, b"\x05" + struct.pack(">IB", 0, 9) + HEAD_BLOCK + bytes(5), 0x2c),
        lambda n: headers(n, b"\xff" + struct.pack(">IB", 7, 9) + TRAILER_BLOCK + bytes(255), 0x2d)),
    "huffman": (head, lambda n: trailers(n, HUFFMAN_STATUS)),
    "a-table-that-it-should-not-have": (
        lambda n: headers(n, STATUS_200 + b"\x40\x0ccontent-type\x10application/grpc\x40\x01a\x01b\x40\x0bgrpc-status\x010"),
        lambda n: trailers(n, b"\xbe\xbf\x0f\x30\x03new")),
    "table-sizes": (lambda n: headers(n, b"\x20\x3f\xe1\x1f" + HEAD_BLOCK), lambda n: trailers(n, b"\x20" + TRAILER_BLOCK)),
    "bytes-above-ascii": (lambda n: headers(n, HEAD_BLOCK + literal(b"x", "h\u00e9".encode())), trailers),
}


def whole(t, p, script, expected, phase):
    x = raw_executor(t, script)
    c = t.client(p, window=2**20, conn_window=WIDE)
    s = c.get(x).wait_done(20)
    check(not x.errors, "%s: the script failed: %r", phase, x.errors[:1])
    check_clean(s, bytes(expected))
    x.connection().finish()
    c.close()


def add_middle(name, make, content):
    @case("odd/" + name)
    def _(t):
        p = t.proxy()
        for phase in (BODY, BIG):
            def script(conn):
                number = begin(conn, phase)
                if phase == BIG:
                    promoted(t, p)
                conn.take(number, 200)
                conn.send(data(number, bytes(100)) + make(number, conn) + data(number, bytes(100)))
                conn.data(number, 50_000)
                conn.send(trailers(number))
                conn.linger()
            whole(t, p, script, (1000 if phase == BODY else LARGE) + 50_200 + content, phase)


def add_blocks(name, first, last):
    @case("odd/" + name)
    def _(t):
        p = t.proxy()
        for phase, size in ((BODY, 1000), (BIG, LARGE)):
            def script(conn):
                conn.start()
                number = conn.request()
                conn.send(first(number))
                conn.data(number, size)
                if phase == BIG:
                    promoted(t, p)
                conn.send(last(number))
                conn.linger()
            whole(t, p, script, size, phase)


for name, (make, content) in MIDDLE.items():
    add_middle(name, make, content)
for name, (first, last) in BLOCKS.items():
    add_blocks(name, first, last)


# ------------------------------------------------------------------------- after the end


def after_the_end(t, extra):
    """Two results on one connection; `extra` comes on the first one's stream after its end."""
    def script(conn):
        conn.start()
        first = conn.request()
        conn.send(head(first))
        second = conn.request()
        conn.data(first, 1000)
        conn.take(second, 1000)
        conn.send(trailers(first) + extra(first) + head(second) + data(second, bytes(1000)) + trailers(second))
        conn.linger()
    x = raw_executor(t, script)
    c = t.client(t.proxy())
    neighbour = Neighbour(t, c)
    one = c.get(x)
    one.wait_head()
    two = c.get(x)
    check_clean(one.wait_done(), bytes(1000))
    two.wait_done()
    check(not x.errors, "the script failed: %r", x.errors[:1])
    neighbour.finish()
    return two, x.connection()


@case("odd/after-the-end")
def _(t):
    """What crosses an end, or says nothing: ignored."""
    two, conn = after_the_end(t, lambda n: wire.window_update(n, 5) + wire.rst_stream(n, wire.NO_ERROR) + trailers(n)
                              + wire.frame(wire.PRIORITY, 0, n, bytes(5)) + data(n, b"") + wire.frame(0x42, 0, n, b"x"))
    check_clean(two, bytes(1000))
    conn.finish()


@case("rules/data-after-the-end")
def _(t):
    """Nobody gave credit for it: STREAM_CLOSED."""
    two, conn = after_the_end(t, lambda n: data(n, b"more"))
    check(two.status == 2 and "closed stream" in two.message, "told %s", two.describe())
    conn.wait(lambda: conn.closed, "the end")
    check(told(conn) == CLOSED, "the executor is told %s", told(conn))


@case("rules/data-after-a-reset")
def _(t):
    """The client cancels; the executor goes on for as much as it had credit, and then beyond."""
    def script(conn):
        conn.start()
        first = conn.request()
        conn.send(head(first))
        second, third = conn.request(), conn.request()
        conn.take(first, 1)
        conn.send(data(first, b"x"))
        conn.wait(lambda: conn.has(wire.RST_STREAM, first), "the cancellation")
        rest = conn.credit[first]
        conn.send(b"".join(data(first, bytes(min(16384, rest - i))) for i in range(0, rest, 16384)))
        conn.take(second, 1000)
        conn.send(head(second) + data(second, bytes(1000)) + trailers(second))
        conn.send(head(third) + data(first, b"x"))
        conn.linger()
    x = raw_executor(t, script)
    c = t.client(t.proxy())
    one = c.get(x)
    one.wait_head()
    two, three = c.get(x), c.get(x)
    one.wait_bytes(1)
    one.rst()
    check_clean(two.wait_done(), bytes(1000))
    three.wait_done()
    check(not x.errors, "the script failed: %r", x.errors[:1])
    check(three.status == 2 and "closed stream" in three.message, "told %s", three.describe())
    check(told(x.connection()) in (wire.CANCEL, CLOSED), "the executor is told %s", told(x.connection()))
