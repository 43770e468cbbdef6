"""Firefox and WebKit, for the few checks that another engine than Chromium's has to pass.

Each is spoken to in its own way, which needs no package: Firefox listens for Marionette, WebKit's
driver for WebDriver over HTTP. WebKit draws on a screen, for which Xvfb stands in. `FOUND` says
which can be had here, and what to install where one cannot.
"""

import base64
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MINI_BROWSERS = sorted(Path("/usr/lib").glob("*/webkit2gtk-4*/MiniBrowser"))
PATIENCE_S = 60
PREFERENCES = (
    'user_pref("marionette.port", 0);\n'
    'user_pref("browser.shell.checkDefaultBrowser", false);\n'
    'user_pref("datareporting.policy.dataSubmissionEnabled", false);\n'
)


class Firefox:
    """A headless Firefox: messages of Marionette are their length, a colon and JSON."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self._answers = self._socket.makefile("rb")
        self._read()  # it says hello
        self._sent = 0
        self._call("WebDriver:NewSession")

    def _read(self) -> Any:
        length = b""
        while (byte := self._answers.read(1)) != b":":
            if not byte:
                raise ConnectionError("Firefox has gone")
            length += byte
        return json.loads(self._answers.read(int(length)))

    def _call(self, command: str, **parameters: Any) -> Any:
        self._sent += 1
        message = json.dumps([0, self._sent, command, parameters]).encode()
        self._socket.sendall(str(len(message)).encode() + b":" + message)
        _, _, error, value = self._read()
        if error:
            raise RuntimeError(f"{command}: {error['message']}")
        return value

    def open(self, address: str) -> None:
        self._call("WebDriver:Navigate", url=address)

    def evaluate(self, script: str) -> Any:
        return self._call("WebDriver:ExecuteScript", script=f"return ({script})()")["value"]

    def pdf(self) -> bytes:
        return base64.b64decode(self._call("WebDriver:Print")["value"])


class WebKit:
    """WebKit's small browser, through its driver."""

    def __init__(self, port: int) -> None:
        self._root = f"http://127.0.0.1:{port}/session"
        options = {"binary": str(MINI_BROWSERS[-1]), "args": ["--automation"]}
        wanted = {"alwaysMatch": {"webkitgtk:browserOptions": options}}
        self._root += "/" + self._call("", capabilities=wanted)["sessionId"]

    def _call(self, path: str, **parameters: Any) -> Any:
        request = urllib.request.Request(self._root + path, json.dumps(parameters).encode())
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)["value"]

    def open(self, address: str) -> None:
        self._call("/url", url=address)

    def evaluate(self, script: str) -> Any:
        return self._call("/execute/sync", script=f"return ({script})()", args=[])


@contextmanager
def _started(command: list[str], **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, 15)
        process.wait(PATIENCE_S)


@contextmanager
def firefox() -> Iterator[Firefox]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        Path(profile, "user.js").write_text(PREFERENCES, "utf-8")
        command = [FOUND["firefox"], "-headless", "-marionette", "-no-remote", "-profile", profile]
        with _started(command):
            said = Path(profile, "MarionetteActivePort")
            begun = time.monotonic()
            while not (said.exists() and said.read_text()):
                assert time.monotonic() - begun < PATIENCE_S, "Firefox does not start"
                time.sleep(0.1)
            yield Firefox(int(said.read_text()))


@contextmanager
def webkit() -> Iterator[WebKit]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["xvfb-run", "-a", FOUND["webkit"], f"--port={port}"]
    alone = {"WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS": "1", "WEBKIT_DISABLE_DMABUF_RENDERER": "1"}
    with _started(command, GDK_BACKEND="x11", **alone):
        begun = time.monotonic()
        while True:
            try:
                started = WebKit(port)
                break
            except (urllib.error.URLError, ConnectionError):
                assert time.monotonic() - begun < PATIENCE_S, "WebKit's driver does not start"
                time.sleep(0.2)
        yield started


def _webkit() -> str:
    driver = shutil.which("WebKitWebDriver") if MINI_BROWSERS else None
    return driver or "" if shutil.which("xvfb-run") else ""


FOUND = {"firefox": shutil.which("firefox-esr") or "", "webkit": _webkit()}
PACKAGES = {"firefox": "firefox-esr", "webkit": "webkit2gtk-driver xvfb xauth"}
STARTS = {"firefox": firefox, "webkit": webkit}
