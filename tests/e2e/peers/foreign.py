# SPDX-License-Identifier: Apache-2.0
"""
Another agent's sockmap, as an observability agent would have one: takes sockets out of a running
process (pidfd_getfd) and puts them into a map of its own that has a verdict program. bpf(2) by hand: a
library would bring programs of its own.
"""
import ctypes
import os
import platform
import struct

from .harness import Skip

BPF, PIDFD_OPEN, PIDFD_GETFD = (280 if platform.machine() == "aarch64" else 321), 434, 438
MAP_CREATE, MAP_UPDATE_ELEM, PROG_LOAD, PROG_ATTACH = 0, 2, 5, 8
MAP_TYPE_SOCKMAP, PROG_TYPE_SK_SKB, SK_SKB_STREAM_VERDICT = 15, 14, 5
# r0 = SK_PASS; exit: every byte goes to the socket it came for.
PASS = struct.pack("<BBhi", 0xB7, 0, 0, 1) + struct.pack("<BBhi", 0x95, 0, 0, 0)

libc = ctypes.CDLL(None, use_errno=True)


def syscall(what, number, *arguments):
    got = libc.syscall(ctypes.c_long(number), *arguments)
    if got < 0:
        error = ctypes.get_errno()
        if error == 1:
            raise Skip(f"{what}: {os.strerror(error)} (needs root)")
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return got


def bpf(what, command, attributes):
    attributes = attributes.ljust(144, b"\0")
    return syscall(what, BPF, ctypes.c_long(command), ctypes.c_char_p(attributes), ctypes.c_long(len(attributes)))


class ForeignSockmap:
    def __init__(self, size=64):
        self.code, self.license = ctypes.create_string_buffer(PASS), ctypes.create_string_buffer(b"GPL")
        self.map = bpf("sockmap", MAP_CREATE, struct.pack("<IIII", MAP_TYPE_SOCKMAP, 4, 4, size))
        self.program = bpf("program", PROG_LOAD, struct.pack(
            "<IIQQ", PROG_TYPE_SK_SKB, 2, ctypes.addressof(self.code), ctypes.addressof(self.license)))
        bpf("attach", PROG_ATTACH, struct.pack("<III", self.map, self.program, SK_SKB_STREAM_VERDICT))
        self.used = 0

    def take(self, pid, port):
        """Enrols the process's connections whose other end has this port; returns their number."""
        before, pidfd = self.used, syscall("pidfd_open", PIDFD_OPEN, ctypes.c_long(pid), ctypes.c_long(0))
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                    continue
                fd = syscall("pidfd_getfd", PIDFD_GETFD, ctypes.c_long(pidfd), ctypes.c_long(int(name)), ctypes.c_long(0))
            except FileNotFoundError:
                continue
            if peer_port(fd) == port:
                key, value = ctypes.c_uint32(self.used), ctypes.c_uint32(fd)
                bpf("enrol", MAP_UPDATE_ELEM, struct.pack(
                    "<IIQQQ", self.map, 0, ctypes.addressof(key), ctypes.addressof(value), 0))
                self.used += 1
            os.close(fd)
        os.close(pidfd)
        return self.used - before

    def close(self):
        os.close(self.map)
        os.close(self.program)


def peer_port(fd):
    """The port of an IPv4 connection's other end; None for other sockets."""
    address, length = ctypes.create_string_buffer(28), ctypes.c_uint32(28)
    if libc.getpeername(fd, address, ctypes.byref(length)) or int.from_bytes(address.raw[:2], "little") != 2:
        return None
    return int.from_bytes(address.raw[2:4], "big")
