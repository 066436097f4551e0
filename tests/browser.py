"""A real headless Chromium by its DevTools pipe: no driver, no package, no network."""

import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

_SIZE = (1100, 700)


def chromium() -> str:
    """Path of Chromium; skips the test without it, and fails it in CI."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    if os.environ.get("CI") == "true":
        pytest.fail("no Chromium, and CI must have it (Debian: apt-get install chromium)")
    pytest.skip("no Chromium here")


class Browser:
    """One page; keeps what its console said and what it asked the network for.

    Parameters
    ----------
    profile : Path
        Empty folder for Chromium's own files.
    """

    def __init__(self, profile: Path) -> None:
        path = chromium()
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4, which may be taken here.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_browser, from_browser)]
        os.close(to_browser)
        os.close(from_browser)
        command = f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}'
        # SwiftShader draws WebGL without a GPU.
        flags = [
            "--headless=new",
            "--no-sandbox",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
            f"--window-size={_SIZE[0]},{_SIZE[1]}",
            "--use-angle=swiftshader",
            "--enable-unsafe-swiftshader",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-dev-shm-usage",
        ]
        self._process = subprocess.Popen(
            ["bash", "-c", command, "chromium", path, *flags],
            pass_fds=ends,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in ends:
            os.close(end)
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._session: str | None = None
        self.console: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)
        os.close(self._write)
        os.close(self._read)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and wait for its answer; events on the way are kept."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._keep(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._read, 1 << 20)
            assert part, "Chromium has ended"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _keep(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.console.append(str(parameters["exceptionDetails"]))
        elif event.get("method") == "Runtime.consoleAPICalled":
            if parameters["type"] in ("error", "warning", "assert"):
                self.console.append(str(parameters["args"]))
        elif event.get("method") == "Log.entryAdded":
            # Chromium itself warns that reading back a software-drawn canvas is slow.
            if parameters["entry"]["level"] == "error":
                self.console.append(str(parameters["entry"]))
        elif event.get("method") == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def open(self, path: Path) -> None:
        """Open a file and wait until it is loaded."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait_for("document.readyState + location.protocol === 'completefile:'")

    def wait_for(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        deadline = time.monotonic() + 30
        while not self.evaluate(condition):
            assert time.monotonic() < deadline, f"not within 30 s: {condition}"
            time.sleep(0.05)

    def click(self, selector: str, text: str = "") -> None:
        """Wait for an element by its CSS selector, and by its text if given, and click on it."""
        found = (
            f"[...document.querySelectorAll({json.dumps(selector)})]"
            f".filter(e => [e.textContent.trim(), ''].includes({json.dumps(text)})).at(-1)"
        )
        self.wait_for(f"Boolean({found})")
        self.evaluate(f"{found}.click()")

    def evaluate(self, expression: str) -> Any:
        """Value of a JavaScript expression on the page; of a promise, what it brings."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def drag(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Press the mouse, move it in steps, release it."""
        steps = 8
        self._mouse("mouseMoved", *start, 0)
        self._mouse("mousePressed", *start, 1)
        for step in range(1, steps + 1):
            x, y = (a + (b - a) * step / steps for a, b in zip(start, end, strict=True))
            self._mouse("mouseMoved", x, y, 1)
        self._mouse("mouseReleased", *end, 0)
        # Moves reach the page with its next frame.
        frames = "requestAnimationFrame(() => requestAnimationFrame(done))"
        self.evaluate(f"new Promise((done) => {frames})")

    def _mouse(self, kind: str, x: float, y: float, buttons: int) -> None:
        self.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=x,
            y=y,
            button="left" if kind != "mouseMoved" or buttons else "none",
            buttons=buttons,
            clickCount=0 if kind == "mouseMoved" else 1,
        )

    def screenshot(self, path: Path) -> bytes:
        """Take a picture of the page as PNG, also into a file."""
        picture = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        path.write_bytes(picture)
        return picture
