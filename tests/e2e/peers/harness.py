# SPDX-License-Identifier: Apache-2.0
"""Cases, and how they are run.

    @case("death/fin-mid-frame")
    def _(t):
        x = t.executor(script)
        p = t.proxy("--stall-timeout", "300ms")
        c = t.client(p)
        ...
        check(stream.status == 2, "grpc-status %s", stream.status)

Each case runs in a process of its own with a time limit, so that nothing of one reaches another. When
its function has returned, what it started is closed, and the proxy must then be idle (no client, no
stream, every byte accounted for), end on SIGTERM with status 0, and neither side may have seen the
other break HTTP/2.

`naive` says what the case does with the naive forwarder in place of the proxy ("pass" or "fail"): see
tests/e2e/naive.
"""
import contextlib
import ctypes
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import time
import traceback

from . import proxy as proxy_module
from .client import Client
from .executor import Executor
from .link import Failed
from .proxy import NAIVE, SANITIZED, Proxy

CLONE_NEWNS, CLONE_NEWNET = 0x20000, 0x40000000
# Bounds on time are multiplied by this: a sanitized binary on a busy machine is not what they are about.
SLACK = float(os.environ.get("FLIGHTSPLICE_E2E_SLACK", 5 if SANITIZED else 1))
# Volumes are multiplied by this.
SCALE = float(os.environ.get("FLIGHTSPLICE_E2E_SCALE", 0.1 if SANITIZED else 1))
BUILD = os.environ.get("BUILD", "build")

TRIES = 3  # of a case that is only late
CASES = []


class Skip(Exception):
    """Raised by a case; its text is the reason."""


class Case:
    def __init__(self, name, function, naive, limit, namespace):
        self.name, self.function, self.naive = name, function, naive
        self.limit, self.namespace = limit, namespace


def case(name, naive="fail", limit=60, namespace=False):
    """namespace: runs in network and mount namespaces of its own, with only `lo` (root only)."""
    def add(function):
        CASES.append(Case(name, function, naive, limit, namespace))
        return function
    return add


def check(condition, text, *args):
    if not condition:
        raise Failed(text % args if args else text)


class Late(Failed):
    """Right, but too late. A machine may be busy: the case is run again, and fails when it is late each time."""


def check_time(took, bound, what):
    if took > bound:
        raise Late(f"{what} took {took:.2f} s, bound {bound:g} s")


class Context:
    """What a case starts through it is cleaned up after it."""

    def __init__(self, folder):
        self.folder = folder
        self.stack = contextlib.ExitStack()
        self.proxies, self.clients, self.executors = [], [], []
        self.tolerate_violations = False  # for cases where a peer breaks the rules on purpose

    def proxy(self, *flags, **options):
        p = Proxy(self.folder, *flags, **options)
        self.stack.callback(p.kill)
        self.proxies.append(p)
        return p

    def executor(self, script, **options):
        x = Executor(script, **options)
        self.stack.callback(x.close)
        self.executors.append(x)
        return x

    def client(self, proxy, **options):
        c = Client(proxy.address, **options)
        self.stack.callback(c.close)
        self.clients.append(c)
        return c

    def process(self, command, **options):
        """A child that is killed with the case."""
        p = subprocess.Popen(command, preexec_fn=proxy_module.die_with_parent, **options)

        def end():
            if p.poll() is None:
                p.kill()
            p.wait()
        self.stack.callback(end)
        return p

    def finish(self):
        """The checks that every case ends with."""
        if not self.tolerate_violations:
            for side, links in (("client", self.clients), ("executor", [k for x in self.executors for k in x.links])):
                for link in links:
                    check(not link.violation, "the %s saw a violation: %s", side, link.violation)
        for x in self.executors:
            check(not x.errors, "the executor's script failed: %r", x.errors[:1])
        for c in self.clients:
            c.close()
        for p in self.proxies:
            if p.running():
                p.wait_idle()
            p.stop()


def within(seconds):
    """A bound on time, with the slack of this run."""
    return seconds * SLACK


def enter_namespace():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET | CLONE_NEWNS):
        raise Skip(f"no namespaces: {os.strerror(ctypes.get_errno())} (needs root)")
    ip("link", "set", "lo", "up")
    # Mounts made here stay here.
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


def ip(*arguments):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def run_in_child(case_, folder, pipe):
    """The child's side of a case: sends ("pass" | "fail" | "skip", reason)."""
    context = Context(folder)
    result = "pass", ""
    os.setpgid(0, 0)
    try:
        if case_.namespace:
            enter_namespace()
        note = case_.function(context)
        context.finish()
        result = "pass", note or ""
    except Late as error:
        result = "late", str(error)
    except Failed as error:
        result = "fail", str(error)
    except Skip as error:
        result = "skip", str(error)
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        result = "fail", f"{type(error).__name__}: {error} ({os.path.basename(where.filename)}:{where.lineno})"
        traceback.print_exc()
    pipe.send(result)
    pipe.close()
    with contextlib.suppress(Exception):
        context.stack.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def run_case(case_, folder):
    """(result, reason, seconds)"""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    parent, child = multiprocessing.Pipe(duplex=False)
    started = time.monotonic()
    limit = case_.limit * max(1, SLACK / 2)
    process = multiprocessing.get_context("fork").Process(target=run_in_child, args=(case_, folder, child))
    process.start()
    child.close()
    result = "fail", f"not finished after {limit:g} s"
    try:
        if parent.poll(limit):
            result = parent.recv()
    except EOFError:
        result = "fail", "the case's process died"
    process.join(15)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, 9)
    process.join()
    return (*result, time.monotonic() - started)


def judge(case_, result, reason):
    """With the naive forwarder a case must do what it says it does there."""
    if not NAIVE or result == "skip":
        return result, reason
    if result == case_.naive:
        return "pass", reason
    if result == "pass":
        return "fail", "passes with a forwarder that does none of it: this case cannot fail"
    return "fail", f"should pass with a plain forwarder: {reason}"


def main(arguments):
    patterns = [a for a in arguments if not a.startswith("-")]
    options = [a for a in arguments if a.startswith("-")]
    jobs = 1
    for option in options:
        if option == "--list":
            print("\n".join(c.name for c in CASES))
            return 0
        if option.startswith("--jobs="):
            jobs = int(option[7:])
        else:
            print(f"e2e: unknown option {option}; there are --list and --jobs=N", file=sys.stderr)
            return 2
    cases = [c for c in CASES if not patterns or any(c.name.startswith(p) for p in patterns)]
    if not cases:
        print(f"e2e: no case begins with {' or '.join(patterns)}; see --list", file=sys.stderr)
        return 2
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    # Suites that run at the same time, on other binaries or datapaths, keep apart.
    binary = os.path.dirname(proxy_module.BINARY).strip("/").replace("/", "-")
    folder = os.path.join(BUILD, "e2e", f"run-{binary}-{proxy_module.DATAPATH}")
    counts = {"pass": 0, "fail": 0, "skip": 0}

    def one(c):
        for _ in range(TRIES):
            result = run_case(c, os.path.join(folder, c.name.replace("/", "-")))
            if result[0] != "late":
                return c, result
        return c, ("fail", f"late {TRIES} times: {result[1]}", result[2])

    for c, (result, reason, seconds) in each(one, cases, jobs):
        reason = " ".join(str(reason).split())
        result, reason = judge(c, result, reason)
        counts[result] += 1
        if result == "pass":
            print(f"PASS {c.name}", flush=True)
        else:
            print(f"{result.upper()} {c.name}: {reason}", flush=True)
        print(f"     {seconds:6.2f} s  {reason if result == 'pass' else ''}".rstrip(), flush=True)
    print(f"{counts['pass']} passed, {counts['fail']} failed, {counts['skip']} skipped; logs in {folder}/")
    return 1 if counts["fail"] or not counts["pass"] else 0


def each(function, items, jobs):
    if jobs == 1:
        yield from map(function, items)
        return
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(function, items)
