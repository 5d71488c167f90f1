# SPDX-License-Identifier: Apache-2.0
"""
Makes a DoGet of each plain GET that h2spec sends, so that its answer has DATA, and touches nothing else.

h2spec can ask for any path, but only by `GET` without a body. Between it and the proxy the translator
copies bytes both ways as they come. One frame it replaces: HEADERS with exactly END_STREAM | END_HEADERS
whose block begins with the indexed `:method: GET` becomes the same block with POST and gRPC's fields,
without END_STREAM, and a DATA frame with the ticket and END_STREAM. Whatever is malformed or has other
flags passes as it is, and an end (FIN or RST) on one side is the same end on the other.
"""
import socket
import struct
import threading

from . import wire
from .rawexec import literal

GET, POST = 0x82, 0x83  # the static table's :method entries
PLAIN = wire.END_STREAM | wire.END_HEADERS
GRPC_FIELDS = literal(b"te", b"trailers") + literal(b"content-type", b"application/grpc")


class Rewriter:
    """The bytes from h2spec, in any pieces."""

    def __init__(self, body):
        self.body = body
        self.buffer = bytearray()
        self.preface_left = len(wire.PREFACE)
        self.pass_on = 0  # bytes of the frame begun

    def feed(self, data):
        self.buffer += data
        out = bytearray()
        while self.buffer:
            if self.preface_left:
                take = min(self.preface_left, len(self.buffer))
                self.preface_left -= take
            elif self.pass_on:
                take = min(self.pass_on, len(self.buffer))
                self.pass_on -= take
            else:
                if len(self.buffer) < 9:
                    break
                length = int.from_bytes(self.buffer[:3], "big")
                kind, flags = self.buffer[3], self.buffer[4]
                if kind != wire.HEADERS or flags != PLAIN or not 0 < length <= 16000:
                    self.pass_on = 9 + length
                    continue
                if len(self.buffer) < 9 + length:
                    break
                take = 9 + length
                out += self.rewrite(bytes(self.buffer[:take]))
                del self.buffer[:take]
                continue
            out += self.buffer[:take]
            del self.buffer[:take]
        return bytes(out)

    def rewrite(self, frame):
        block = frame[9:]
        number = struct.unpack_from(">I", frame, 5)[0]
        if block[0] != GET:
            return frame
        block = bytes([POST]) + block[1:] + GRPC_FIELDS
        return (wire.frame(wire.HEADERS, wire.END_HEADERS, number, block)
                + wire.frame(wire.DATA, wire.END_STREAM, number, self.body))

    def rest(self):
        """What an end cut off inside a frame's head or a block."""
        return bytes(self.buffer)


class Translator:
    def __init__(self, target, body):
        self.target, self.body = target, body
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.address = self.listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(self.target)
            for s in (near, far):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            rewriter = Rewriter(self.body)
            threading.Thread(target=copy, args=(near, far, rewriter.feed, rewriter.rest), daemon=True).start()
            threading.Thread(target=copy, args=(far, near, bytes, bytes), daemon=True).start()

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()


def copy(source, sink, through, rest):
    try:
        while data := source.recv(65536):
            sink.sendall(through(data))
        sink.sendall(rest())
        sink.shutdown(socket.SHUT_WR)
    except ConnectionResetError:
        for s in (source, sink):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
    except OSError:
        pass  # the other direction's end
