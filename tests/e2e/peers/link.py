# SPDX-License-Identifier: Apache-2.0
"""One HTTP/2 connection, either side: the socket, the `h2` library's state, and a reading thread.

Every frame that comes in is kept as it was (`frames`), and is also fed to H2Connection, which is
strict: when the other side breaks the protocol or a window, its complaint is in `violation` and the
connection is closed. Frames go out through H2Connection where it lets them, and as raw bytes
where a test needs what no well-behaved library sends.

GOAWAY is kept from H2Connection: the library ends all streams on it, where RFC 9113 lets them finish.
"""
import socket
import struct
import threading
import time

import h2.config
import h2.connection
import h2.exceptions

from . import wire

WAIT_SECONDS = 5


class Failed(Exception):
    """The case's verdict; its text is the reason."""


class Link:
    def __init__(self, sock, client_side):
        self.sock = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(
            client_side=client_side, header_encoding="utf-8", validate_inbound_headers=True,
            validate_outbound_headers=False, normalize_outbound_headers=False))
        self.client_side = client_side
        self.cond = threading.Condition(threading.RLock())
        self.frames = []
        self.goaways = []  # (last stream, code, time)
        self.pongs = {}  # payload: time
        self.violation = None
        self.closed = None  # "fin" or "reset", when the other side ended the connection
        self.closed_at = None
        self.mute = False  # True: nothing is sent, not even automatic answers
        self.reading = True
        self.splitter = wire.FrameSplitter()
        self.preface_left = 0 if client_side else len(wire.PREFACE)
        self.thread = threading.Thread(target=self._read, daemon=True)

    # ---- sending

    def raw(self, data):
        with self.cond:
            try:
                self.sock.sendall(data)
            except OSError:
                self._ended("reset")

    def flush(self, reshape=None):
        """Sends what H2Connection has to say. reshape: list of Frame -> list of Frame or bytes."""
        with self.cond:
            if self.mute:
                return
            data = self.h2.data_to_send()
            if reshape and data:
                skip = len(wire.PREFACE) if data.startswith(wire.PREFACE) else 0
                frames = wire.FrameSplitter().feed(data[skip:], 0)
                data = data[:skip] + b"".join(f if isinstance(f, bytes) else f.encode() for f in reshape(frames))
            if data:
                self.raw(data)

    def ping(self, payload):
        with self.cond:
            self.h2.ping(payload)
            self.flush()

    def unmute(self):
        with self.cond:
            self.mute = False
            self.flush()

    def close(self):
        """FIN both ways; what the other side still sends is lost."""
        with self.cond:
            self.reading = True
            self.cond.notify_all()
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.thread.join(2)
        self.sock.close()

    def finish(self):
        """FIN; reading goes on."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def abort(self):
        """RST."""
        with self.cond:
            self.reading = True
            self.cond.notify_all()
        try:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # The reading thread's recv() holds the file open, so that close() alone would send
            # nothing: disconnecting (AF_UNSPEC) sends the RST at once and wakes it.
            disconnect(self.sock)
        except OSError:
            pass
        self.thread.join(2)
        self.sock.close()

    # ---- receiving

    def pause_reading(self):
        with self.cond:
            self.reading = False

    def resume_reading(self):
        with self.cond:
            self.reading = True
            self.cond.notify_all()

    def _read(self):
        while True:
            with self.cond:
                self.cond.wait_for(lambda: self.reading)
            try:
                data = self.sock.recv(65536)
            except OSError:
                return self._ended("reset")
            if not data:
                self._ended("fin")
                return self.finish()  # as every real peer does; the other side need not linger
            with self.cond:
                try:
                    self._take(data)
                except h2.exceptions.ProtocolError as error:
                    self.violation = f"{type(error).__name__}: {error}"
                    self.flush()
                    self._ended("violation")
                    return self.finish()
                finally:
                    self.cond.notify_all()

    def _take(self, data):
        if self.preface_left:
            n = min(self.preface_left, len(data))
            self.preface_left -= n
            self.h2.receive_data(data[:n])
            data = data[n:]
        for f in self.splitter.feed(data, time.monotonic()):
            self.frames.append(f)
            if f.kind == wire.GOAWAY:
                last, code = struct.unpack_from(">II", f.payload)
                self.goaways.append((last & wire.STREAM_MAX, code, f.at))
                continue
            if f.kind == wire.PING and f.flags & wire.ACK:
                self.pongs[f.payload] = f.at
            for event in self.h2.receive_data(f.encode()):
                self.on_event(event, f)
        self.flush()

    def _ended(self, how):
        with self.cond:
            if not self.closed:
                self.closed = how
                self.closed_at = time.monotonic()
                self.on_closed()
            self.cond.notify_all()

    def on_event(self, event, frame):
        raise NotImplementedError

    def on_closed(self):
        pass

    # ---- waiting

    def wait(self, predicate, what, seconds=WAIT_SECONDS):
        """Waits for predicate(); a Failed that says `what` when it does not come true."""
        with self.cond:
            if not self.cond.wait_for(predicate, seconds):
                raise Failed(f"not within {seconds:g} s: {what}" + self._state())

    def quiet(self, predicate, what, seconds):
        """The opposite: predicate() must stay false for so long."""
        with self.cond:
            if self.cond.wait_for(predicate, seconds):
                raise Failed(f"must not happen: {what}" + self._state())

    def _state(self):
        text = f" [connection {self.closed or 'open'}"
        if self.violation:
            text += f", {self.violation}"
        if self.goaways:
            text += f", GOAWAY {[g[:2] for g in self.goaways]}"
        return text + f", last frames {self.frames[-4:]}]"


def disconnect(sock):
    """connect(AF_UNSPEC): with SO_LINGER 0 a RST goes out whatever other threads do with the socket."""
    import ctypes
    address = ctypes.create_string_buffer(16)
    ctypes.CDLL(None, use_errno=True).connect(sock.fileno(), address, 16)
