# SPDX-License-Identifier: Apache-2.0
"""The proxies that are compared: where their programs are found and how they are started.

A peer has `name`, `version`, `missing` (why it cannot run, or None), and `command(listen,
upstream, run_dir)`: the command line that serves in the foreground.
"""
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
REPO = os.path.dirname(os.path.dirname(HERE))
CONFIGS = os.path.join(HERE, "peers")
CPUS = str(os.cpu_count())
PIN_DIR = f"/sys/fs/bpf/flightsplice-bench-{os.getpid()}"


def output_of(argv):
    r = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                       check=False)
    return r.stdout


def shared_programs(folder):
    """Fetches current releases with the shared get.sh. {name: command prefix}, or {} without it."""
    shared = os.environ.get("FLIGHTSPLICE_SHARED", os.path.join(REPO, "..", "shared"))
    get = os.path.join(shared, "peers", "get.sh")
    if not os.path.exists(get):
        return {}
    r = subprocess.run(["bash", get], env={**os.environ, "PEERS": folder}, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, check=False)
    if r.returncode:
        print(f"bench: {get} failed:\n{r.stdout[-2000:]}", file=sys.stderr)
    root = f"{folder}/forky/usr"
    arch = os.uname().machine
    libs = f"{root}/lib/{arch}-linux-gnu"
    loader = [f"{libs}/ld-linux-x86-64.so.2", "--library-path", libs]  # their libc is newer than ours
    return {
        "nginx": loader + [f"{root}/sbin/nginx"],
        "haproxy": loader + [f"{root}/sbin/haproxy"],
        "envoy": [f"{folder}/envoy/envoy/_bin/envoy"],
    }


def find_programs(folder):
    """{name: (command prefix, where it is from)} of nginx, haproxy, envoy; None where there is none."""
    shared = shared_programs(folder)
    found = {}
    for name in ("nginx", "haproxy", "envoy"):
        argv = shared.get(name)
        installed = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
        if argv and os.path.exists(argv[-1]):
            found[name] = argv, "fetched"
        elif installed:
            found[name] = [installed], "installed on this machine"
        else:
            found[name] = None
    return found


def version_key(text):
    return [int(x) for x in re.findall(r"\d+", text)]


def for_version(line, version):
    mark = re.search(r"\s*#@(>=|<)([\d.]+)$", line)
    if not mark:
        return line
    newer = version_key(version) >= version_key(mark.group(2))
    return line[:mark.start()] if newer == (mark.group(1) == ">=") else None


class Peer:
    kind = "peer"
    missing = None
    version = ""

    def __init__(self, name):
        self.name = name


class Direct(Peer):
    """No proxy: the packets are routed."""
    kind = "reference"


class Mover(Peer):
    kind = "reference"

    def __init__(self, name, programs, *flags):
        super().__init__(name)
        self.program, self.flags = f"{programs}/mover", list(flags)

    def command(self, listen, upstream, run_dir):
        return [self.program, "-l", listen, "-u", upstream] + self.flags


class Configured(Peer):
    """A program with a configuration file made from one in peers/."""
    config, version_flag = "", "-v"

    def __init__(self, name, found):
        super().__init__(name)
        if not found:
            self.missing = f"no {name}: ../shared/peers/get.sh is not there and none is installed"
            return
        self.argv, self.origin = found
        text = output_of(self.argv + [self.version_flag])
        m = re.search(r"\d+\.\d+\.\d+", text)
        if not m:
            self.missing = f"{self.argv[-1]} does not tell its version: {text.strip()[:200]}"
            return
        self.number = m.group(0)
        self.version = f"{self.number} ({self.origin})"

    def command(self, listen, upstream, run_dir):
        addr, port = listen.rsplit(":", 1)
        words = {"LISTEN": listen, "LISTEN_ADDR": addr, "LISTEN_PORT": port, "UPSTREAM": upstream,
                 "RUN": run_dir, "HERE": CONFIGS, "CPUS": CPUS}
        with open(os.path.join(CONFIGS, self.config)) as f:
            lines = [for_version(line, self.number) for line in f.read().split("\n")]
        text = "\n".join(line for line in lines if line is not None)
        text = re.sub(r"@([A-Z_]+)@", lambda m: words.get(m.group(1), m.group(0)), text)
        path = os.path.join(run_dir, self.config)
        with open(path, "w") as f:
            f.write(text)
        return self.argv + self.arguments(path, run_dir)


class Nginx(Configured):
    config = "nginx.conf"

    def arguments(self, path, run_dir):
        os.makedirs(f"{run_dir}/body", exist_ok=True)
        return ["-p", run_dir, "-c", path]


class Haproxy(Configured):
    config = "haproxy.cfg"

    def arguments(self, path, run_dir):
        return ["-db", "-f", path]


class Envoy(Configured):
    config, version_flag = "envoy.yaml", "--version"

    def arguments(self, path, run_dir):
        return ["-c", path, "--concurrency", CPUS, "--disable-hot-restart", "-l", "error"]


class Flightsplice(Peer):
    kind = "flightsplice"

    def __init__(self, name, build, datapath, flags):
        super().__init__(name)
        self.program, self.datapath, self.flags = f"{build}/flightsplice", datapath, flags
        if not os.path.exists(self.program):
            self.missing = f"{self.program} is not built"
        else:
            self.version = output_of([self.program, "version"]).strip().split("\n")[0]

    def command(self, listen, upstream, run_dir):
        # The others write no access log either.
        return [self.program, "serve", "--listen", listen, "--admin", "off", "--datapath",
                self.datapath, "--log-level", "warn",
                "--pin-dir", f"{PIN_DIR}/{self.name}"] + self.flags


def all_peers(build, folder, datapaths, variants):
    """`variants` are (suffix of the column's name, flags of serve)."""
    programs = find_programs(folder)
    tests = f"{build}/tests/bench"
    return [
        Direct("direct"),
        Mover("mover", tests),
        Mover("mover-splice", tests, "-s"),
        Nginx("nginx", programs["nginx"]),
        Haproxy("haproxy", programs["haproxy"]),
        Envoy("envoy", programs["envoy"]),
    ] + [Flightsplice(f"fs-{d}{suffix}", build, d, flags.split()) for d in datapaths for suffix, flags in variants]
