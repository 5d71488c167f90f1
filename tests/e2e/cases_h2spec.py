# SPDX-License-Identifier: Apache-2.0
"""
h2spec, strict, against the client's side.

Twice: `plain` as it is, where each GET is answered UNIMPLEMENTED in one HEADERS frame, and `doget` with its
GETs made into DoGets (peers/translator.py), because what h2spec says about windows it can only judge by
DATA. What does not pass has to be in h2spec/exceptions.
"""
import os
import subprocess
import xml.etree.ElementTree

from peers import wire
from peers.client import DO_GET
from peers.executor import reply
from peers.harness import BUILD, SANITIZED, Skip, case, check
from peers.proxy import DATAPATH
from peers.translator import Translator

HERE = os.path.join(os.path.dirname(__file__), "h2spec")
CASES_AT_LEAST = 146  # of v2.2.1: a run that stops early must not look like a good one


def build():
    binary = os.path.join(BUILD, "e2e", "h2spec")
    done = subprocess.run([os.path.join(HERE, "build"), binary], capture_output=True, text=True)
    said = (done.stdout + done.stderr).strip().splitlines() or [""]
    if done.returncode == 77:
        raise Skip(f"h2spec: {said[-1]}")
    check(done.returncode == 0, "h2spec does not build: %s", said[-1])
    return binary


def exceptions(run):
    """{(package, number): why} of one run."""
    found = {}
    with open(os.path.join(HERE, "exceptions")) as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                name, package, number, section, why = line.split(None, 4)
                if name == run:
                    found[package, int(number)] = f"RFC 9113 {section}: {why.strip()}"
    return found


def results(report):
    """[(package, number, text, outcome, detail)] of h2spec's JUnit file."""
    found = []
    for suite in xml.etree.ElementTree.parse(report).getroot().iter("testsuite"):
        for number, one in enumerate(suite.findall("testcase"), 1):
            bad = list(one)
            outcome = "pass" if not bad else "skip" if bad[0].tag == "skipped" else "fail"
            detail = " ".join((bad[0].text or "").split()) if bad else ""
            found.append((suite.get("package"), number, one.get("classname"), outcome, detail))
    return found


def h2spec(t, run, address, *flags):
    """Runs it and returns a summary; a Failed when it is not as the exceptions say."""
    report = os.path.join(t.folder, f"h2spec-{run}.xml")
    with open(os.path.join(t.folder, f"h2spec-{run}.txt"), "w") as out:
        # Its own status says whether anything failed, which is judged here.
        process = t.process([build(), "--strict", "--host", address[0], "--port", str(address[1]), "--timeout",
                             "10" if SANITIZED else "3", "--junit-report", report, *flags], stdout=out, stderr=out)
        process.wait()
    check(os.path.exists(report), "h2spec wrote no report; it ended with %s", process.returncode)
    got, expected, wrong = results(report), exceptions(run), []
    check(len(got) >= CASES_AT_LEAST, "h2spec ran %d cases, not %d", len(got), CASES_AT_LEAST)
    for package, number, text, outcome, detail in got:
        listed = (package, number) in expected
        if (outcome != "pass") != listed:
            wrong.append(f"{package}/{number} {text}: {outcome} {detail}" + (", though it is an exception" if listed else ""))
    for package, number in expected.keys() - {r[:2] for r in got}:
        wrong.append(f"{package}/{number} is an exception, and h2spec has no such case")
    check(not wrong, "%s", "; ".join(wrong))
    count = [sum(r[3] == k for r in got) for k in ("pass", "fail", "skip")]
    return f"{run}, {DATAPATH}: {len(got)} cases, {count[0]} passed, {count[1]} failed, {count[2]} skipped, " \
           f"{len(expected)} exceptions"


@case("conformance/h2spec-plain", limit=900)
def _(t):
    build()
    return h2spec(t, "plain", t.proxy().address)


@case("conformance/h2spec-doget", limit=900)
def _(t):
    """The executor answers with 3,000 bytes."""
    build()
    x = t.executor(reply(wire.message(bytes(2995))), backlog=1024)
    translator = Translator(t.proxy().address, wire.ticket(*x.address))
    t.stack.callback(translator.close)
    return h2spec(t, "doget", translator.address, "--path", DO_GET)
