# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven by chromedriver in the WebDriver protocol (plain JSON over HTTP)."""
import base64
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

from .harness import Skip
from .link import Failed
from .proxy import die_with_parent, free_port

START_SECONDS = 60


class Browser:
    def __init__(self, context, width=1280, height=900):
        chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        driver = shutil.which("chromedriver")
        if not chromium or not driver:
            raise Skip("no chromium and chromedriver here (Debian: chromium, chromium-driver)")
        port = free_port()
        self.base = f"http://127.0.0.1:{port}"
        self.profile = os.path.abspath(os.path.join(context.folder, f"chromium-{port}"))
        self.process = subprocess.Popen([driver, f"--port={port}"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)
        context.stack.callback(self.close)
        self.session = None
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise Failed("chromedriver does not start") from None
                time.sleep(0.05)
        # No sandbox: as root there is none, and the only page is ours. No proxy, no network but the test's.
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server",
                     "--disable-background-networking", "--disable-component-update", "--no-first-run",
                     "--hide-scrollbars", f"--user-data-dir={self.profile}", f"--window-size={width},{height}"]
        answer = self._call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": {"binary": chromium, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}}})
        self.session = answer["sessionId"]

    def close(self):
        if self.session:
            try:
                self._call("DELETE", f"/session/{self.session}")
            except Failed:
                pass
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"content-type": "application/json"}, method=method)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise Failed(f"browser: {error.read().decode(errors='replace')[:300]}") from None
        except OSError as error:
            raise Failed(f"browser: {error}") from None

    def call(self, method, path, body=None):
        return self._call(method, f"/session/{self.session}{path}", body)

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        """What the script returns."""
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def command(self, name, **parameters):
        """Of the DevTools protocol."""
        return self.call("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def resize(self, width, height, mobile=False):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def colours(self, scheme):
        """"light" or "dark"."""
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("GET", "/screenshot")))

    def complaints(self):
        """What the console says: errors of scripts, violations of the policy."""
        return [e["message"] for e in self.call("POST", "/se/log", {"type": "browser"})]

    def requests(self):
        """URLs of everything that pages have asked for so far (told once)."""
        found = []
        for entry in self.call("POST", "/se/log", {"type": "performance"}):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return found

    def wait(self, script, what, seconds=20):
        """Until the script returns something true, which is returned."""
        end = time.monotonic() + seconds
        while True:
            value = self.run(script)
            if value:
                return value
            if time.monotonic() > end:
                raise Failed(f"browser: not within {seconds:g} s: {what}")
            time.sleep(0.1)
