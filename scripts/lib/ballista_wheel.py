#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the PyPI package ballista (scheduler, executor and client) into a virtual environment.

    ballista_wheel.py VENV [VERSION]

The project publishes one binary wheel per processor, tagged manylinux_2_39. Where the C library is
that new (Ubuntu 24.04) this is `pip install`. On Debian 12 (glibc 2.36) pip would skip the wheel and
compile the sources for half an hour, although the library would run: it uses GLIBC_2.39 only for two
weak symbols that its code checks for before it calls them. What keeps the dynamic loader from taking
it is that the version itself is not marked weak in the library's version-needs section. This script
sets that one flag, renames the wheel to what it then really needs, and lets pip install it, so
that dependencies and a later uninstall work as for any wheel.

Nothing is patched unless every symbol of a too new version is weak: a release that truly needs a
newer library is refused with its name.
"""
import base64
import hashlib
import os
import platform
import re
import struct
import subprocess
import sys
import tempfile
import zipfile

VERSION = "54.1.0"
WHEEL_GLIBC = (2, 39)  # the wheel's tag

SHT_DYNSYM = 11
SHT_GNU_VERNEED = 0x6FFFFFFE
SHT_GNU_VERSYM = 0x6FFFFFFF
STB_WEAK = 2
VER_FLG_WEAK = 2


class Elf:
    """As much of a little-endian 64-bit ELF file as symbol versions need."""

    def __init__(self, data):
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not a little-endian 64-bit ELF file")
        self.data = bytearray(data)
        table, = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size)
                         for i in range(count)]

    def section(self, kind):
        """(file offset, size, linked section's file offset, entry count) of the first of a type."""
        for _, typ, _, _, offset, size, link, info, _, _ in self.sections:
            if typ == kind:
                return offset, size, self.sections[link][4], info
        raise ValueError(f"no section of type {kind:#x}")

    def string(self, table, offset):
        start = table + offset
        return self.data[start:self.data.index(0, start)].decode()

    def version_needs(self):
        """Yields (file offset of the entry, version index, version name) of each needed version."""
        entry, _, strings, count = self.section(SHT_GNU_VERNEED)
        for _ in range(count):
            _, versions, _, first, step = struct.unpack_from("<HHIII", self.data, entry)
            aux = entry + first
            for _ in range(versions):
                _, _, index, name, following = struct.unpack_from("<IHHII", self.data, aux)
                yield aux, index, self.string(strings, name)
                aux += following
            entry += step

    def symbols_of(self, version_index):
        """Yields (name, is weak) of each dynamic symbol with this version."""
        symbols, size, strings, _ = self.section(SHT_DYNSYM)
        versions = self.section(SHT_GNU_VERSYM)[0]
        for i in range(size // 24):
            index, = struct.unpack_from("<H", self.data, versions + 2 * i)
            if index & 0x7FFF == version_index:
                name, info = struct.unpack_from("<IB", self.data, symbols + 24 * i)
                yield self.string(strings, name), info >> 4 == STB_WEAK


def glibc():
    """The C library's version, for instance (2, 36)."""
    match = re.match(r"glibc (\d+)\.(\d+)", os.confstr("CS_GNU_LIBC_VERSION") or "")
    if not match:
        sys.exit("ballista_wheel: this C library is not glibc; the ballista package has no wheel for it")
    return int(match[1]), int(match[2])


def weaken(library, have):
    """The library with every glibc version newer than `have` marked weak."""
    elf = Elf(library)
    for offset, index, name in list(elf.version_needs()):
        match = re.fullmatch(r"GLIBC_(\d+)\.(\d+)", name)
        if not match or (int(match[1]), int(match[2])) <= have:
            continue
        strong = [symbol for symbol, weak in elf.symbols_of(index) if not weak]
        if strong:
            sys.exit(f"ballista_wheel: the library really needs {name}: {', '.join(strong)}")
        flags, = struct.unpack_from("<H", elf.data, offset + 4)
        struct.pack_into("<H", elf.data, offset + 4, flags | VER_FLG_WEAK)
    return bytes(elf.data)


def retag(wheel, folder, have):
    """Writes the patched wheel into folder under a tag that this system's pip accepts."""
    old = os.path.basename(wheel)
    new = re.sub(r"manylinux_\d+_\d+", f"manylinux_{have[0]}_{have[1]}", old)
    record = []
    target = os.path.join(folder, new)
    with zipfile.ZipFile(wheel) as source, \
            zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as out:
        for item in source.infolist():
            data = source.read(item)
            if item.filename.endswith(".dist-info/RECORD"):
                record_name = item.filename
                continue
            if item.filename.endswith(".so"):
                data = weaken(data, have)
            elif item.filename.endswith(".dist-info/WHEEL"):
                data = re.sub(rb"manylinux_\d+_\d+", f"manylinux_{have[0]}_{have[1]}".encode(), data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{item.filename},sha256={digest},{len(data)}")
            out.writestr(item, data, zipfile.ZIP_DEFLATED)
        out.writestr(record_name, "\n".join(record + [record_name + ",,"]) + "\n")
    return target


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    python = os.path.join(sys.argv[1], "bin", "python")
    version = sys.argv[2] if len(sys.argv) == 3 else VERSION
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    have = glibc()
    if have >= WHEEL_GLIBC:
        subprocess.check_call(pip + ["install", "--only-binary=:all:", f"ballista=={version}"])
        return
    with tempfile.TemporaryDirectory() as folder:
        tag = f"manylinux_{WHEEL_GLIBC[0]}_{WHEEL_GLIBC[1]}_{platform.machine()}"
        subprocess.check_call(pip + ["download", "--no-deps", "--only-binary=:all:", "--platform", tag,
                                     "--implementation", "cp", "--abi", "abi3", "--dest", folder,
                                     f"ballista=={version}"])
        wheel, = (os.path.join(folder, name) for name in os.listdir(folder))
        patched = retag(wheel, folder, have)
        subprocess.check_call(pip + ["install", "--only-binary=:all:", patched])


if __name__ == "__main__":
    main()
