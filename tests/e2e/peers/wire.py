# SPDX-License-Identifier: Apache-2.0
"""Bytes made by hand: HTTP/2 frames, gRPC messages, Ballista tickets."""
import struct

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
NAMES = ("DATA HEADERS PRIORITY RST_STREAM SETTINGS PUSH_PROMISE PING GOAWAY WINDOW_UPDATE "
         "CONTINUATION").split()
END_STREAM = ACK = 0x1
END_HEADERS, PADDED, PRIORITY_FLAG = 0x4, 0x8, 0x20

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0, 1, 2, 3
REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 7, 8, 9, 11

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS = 1, 2, 3
INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = 4, 5, 6

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
STREAM_MAX = 2**31 - 1


class Frame:
    """One frame as it was on the wire; `at` is when it was read."""

    def __init__(self, kind, flags, stream, payload, at=0.0):
        self.kind, self.flags, self.stream, self.payload, self.at = kind, flags, stream, payload, at

    def encode(self):
        return (struct.pack(">I", len(self.payload))[1:] + bytes([self.kind, self.flags])
                + struct.pack(">I", self.stream) + self.payload)

    def __repr__(self):
        name = NAMES[self.kind] if self.kind < len(NAMES) else f"type {self.kind}"
        return f"{name}(stream {self.stream}, flags {self.flags:#x}, {len(self.payload)} bytes)"


def frame(kind, flags, stream, payload=b""):
    return Frame(kind, flags, stream, payload).encode()


def rst_stream(stream, code):
    return frame(RST_STREAM, 0, stream, struct.pack(">I", code))


def goaway(last, code=NO_ERROR, debug=b""):
    return frame(GOAWAY, 0, 0, struct.pack(">II", last, code) + debug)


def window_update(stream, increment):
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", increment))


def settings(values):
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", k, v) for k, v in values.items()))


class FrameSplitter:
    """Cuts a byte stream into frames."""

    def __init__(self):
        self.buffer = bytearray()

    def feed(self, data, at):
        self.buffer += data
        frames, start = [], 0
        while len(self.buffer) - start >= 9:
            length = int.from_bytes(self.buffer[start:start + 3], "big")
            if len(self.buffer) - start < 9 + length:
                break
            kind, flags = self.buffer[start + 3], self.buffer[start + 4]
            stream = int.from_bytes(self.buffer[start + 5:start + 9], "big") & STREAM_MAX
            frames.append(Frame(kind, flags, stream, bytes(self.buffer[start + 9:start + 9 + length]), at))
            start += 9 + length
        del self.buffer[:start]
        return frames


# ---- protobuf and gRPC ------------------------------------------------------------------------


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def chunk(field, value):
    if isinstance(value, str):
        value = value.encode()
    return varint(field << 3 | 2) + varint(len(value)) + value


def message(payload, compressed=0):
    """A gRPC length-prefixed message."""
    return struct.pack(">BI", compressed, len(payload)) + payload


def action(host, port, job="job-1", stage=1, partition=2, extra=b"", settings_=b""):
    """The bytes of a Ballista ticket: Action{fetch_partition}. host or port None: left out."""
    part = chunk(1, job) + number(2, stage) + number(3, partition)
    if host is not None:
        part += chunk(5, host)
    if port is not None:
        part += number(6, port)
    return chunk(3, part + extra) + settings_


def ticket(host, port, **rest):
    """The request message of DoGet: Ticket{ticket = Action}, with its gRPC prefix."""
    return message(chunk(1, action(host, port, **rest)))
