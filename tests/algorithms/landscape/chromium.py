"""Chromium without a window, driven through its debugging pipe: nothing to install beside the browser itself."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_SANDBOX = ("--no-sandbox",) if hasattr(os, "geteuid") and os.geteuid() == 0 else ()


def executable() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of a browser: real mouse and key events, and everything that it complains about."""

    def __init__(self, profile: Path, *, width: int = 1280, height: int = 800) -> None:
        found = executable()
        assert found is not None
        read_commands, self._commands = os.pipe()
        self._answers, write_answers = os.pipe()
        # Chromium reads commands from descriptor 3 and writes answers to 4.
        shell = f'exec "$0" "$@" 3<&{read_commands} 4>&{write_answers}'
        options = (
            "--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
            f"--user-data-dir={profile}", f"--window-size={width},{height}", *_SANDBOX, "about:blank",
        )  # fmt: skip
        self._process = subprocess.Popen(
            ["bash", "-c", shell, found, *options], pass_fds=(read_commands, write_answers),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(read_commands)
        os.close(write_answers)
        self._buffer, self._number, self._session = b"", 0, ""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._loaded = 0
        [page] = [t for t in self._call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        self._session = self._call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self.resize(width, height)

    def close(self) -> None:
        self._session = ""
        self._call("Browser.close")
        os.close(self._commands)
        os.close(self._answers)
        self._process.wait(timeout=20)

    def resize(self, width: int, height: int) -> None:
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def emulate(self, **media: str) -> None:
        """Media features, such as ``prefers_color_scheme="dark"``."""
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self._call("Emulation.setEmulatedMedia", features=features)

    def open(self, path: Path) -> None:
        self.open_url(path.resolve().as_uri())

    def open_url(self, url: str) -> None:
        before = self._loaded
        self._call("Page.navigate", url=url)
        while self._loaded == before:
            self.evaluate("0")

    def evaluate(self, expression: str) -> Any:
        told = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 10.0) -> None:
        end = time.monotonic() + seconds
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"never came: {expression}"
            time.sleep(0.03)

    def click(self, element: str, *, across: float = 0.5, down: float = 0.5) -> None:
        """Click into the middle of what a selector names, or at shares of its width and height."""
        box = f"document.querySelector({json.dumps(element)}).getBoundingClientRect()"
        x, y = self.evaluate(f"(b => [b.x + {across} * b.width, b.y + {down} * b.height])({box})")
        self.point(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def point(self, x: float, y: float) -> None:
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        codes = {"Escape": 27, "Enter": 13, "Tab": 9, "ArrowRight": 39}
        more = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        if key == "Enter":
            more["text"] = "\r"
        self._call("Input.dispatchKeyEvent", type="keyDown", **more)
        self._call("Input.dispatchKeyEvent", type="keyUp", **more)

    def type(self, text: str) -> None:
        self._call("Input.insertText", text=text)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        body: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            body["sessionId"] = self._session
        os.write(self._commands, json.dumps(body).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._number:
                assert "error" not in told, (method, told["error"])
                result: dict[str, Any] = told["result"]
                return result
            self._note(told)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._answers, 1 << 20)
            assert piece, "the browser has ended"
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\0")
        told: dict[str, Any] = json.loads(line)
        return told

    def _note(self, event: dict[str, Any]) -> None:
        method, body = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(body["exceptionDetails"]))
        elif method == "Log.entryAdded" and body["entry"]["level"] in ("warning", "error"):
            self.complaints.append(body["entry"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(str(body["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(body["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded += 1
