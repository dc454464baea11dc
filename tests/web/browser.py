"""A headless Chromium, spoken to in its own protocol (CDP) over a web socket."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE = 30.0  # seconds until something has gone wrong
PAINTED = """(() => {
  const canvas = document.querySelector('#chart-%s canvas');
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  return new Set(new Uint32Array(data.buffer)).size;
})()"""  # the number of colours in a chart, which has a quantity's name


def chromium() -> str | None:
    """The browser's path, None if there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Tab:
    """A page, with everything that it has logged and asked for."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._numbers = socket, itertools.count(1)
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=PATIENCE))
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def open(self, address: str | Path) -> None:
        self.events.clear()
        url = address.resolve().as_uri() if isinstance(address, Path) else address
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """What JavaScript finds in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.value(expression):
            assert time.monotonic() < end, f"still not so: {expression}"
            time.sleep(0.05)

    def resize(self, width: int, height: int = 900) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def prefer(self, theme: str) -> None:
        """What the system asks of pages: light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def move(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def inside(self, selector: str) -> tuple[float, float]:
        """A place within an element, at its right end, once it is on the screen."""
        self.value(f"document.querySelector('{selector}').scrollIntoView({{block: 'center'}})")
        x, y, width, height = self.value(
            "(({x, y, width, height}) => [x, y, width, height])"
            f"(document.querySelector('{selector}').getBoundingClientRect())"
        )
        return x + width - 2, y + height / 2

    def picture(self, path: Path, *, whole: bool = True) -> Path:
        made = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(made["data"]))
        return path

    def pdf(self) -> bytes:
        made = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        return base64.b64decode(made["data"])

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings of the console, exceptions, and refusals of the page's policy."""
        self.value("1")  # what was logged meanwhile is read with the answer
        found = []
        for event in self.events:
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(event["params"]["exceptionDetails"]))
            if event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] in ("error", "warning"):
                found.append(event["params"]["entry"]["text"])
            if event["method"] == "Runtime.consoleAPICalled" and event["params"]["type"] in ("error", "warning"):
                found.append(str(event["params"]["args"]))
        return found

    @property
    def asked(self) -> list[str]:
        """The addresses of all requests."""
        self.value("1")
        sent = (event for event in self.events if event["method"] == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]


@contextmanager
def browser(program: str) -> Iterator[Callable[[], Tab]]:
    """A browser until the block ends; each call opens a new page."""
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--hide-scrollbars"]
    flags += ["--no-first-run", "--disable-background-networking", "--disable-component-update"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        process = subprocess.Popen(
            [program, *flags, f"--user-data-dir={home}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        sockets: list[ClientConnection] = []
        try:
            port = _port(Path(home) / "DevToolsActivePort", process)

            def new_tab() -> Tab:
                request = urllib.request.Request(f"http://127.0.0.1:{port}/json/new?about:blank", method="PUT")
                with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                    address = json.load(answer)["webSocketDebuggerUrl"]
                sockets.append(connect(address, max_size=None))
                return Tab(sockets[-1])

            yield new_tab
        finally:
            for socket in sockets:
                socket.close()
            process.terminate()
            process.wait(timeout=PATIENCE)


def _port(file: Path, process: subprocess.Popen[bytes]) -> int:
    end = time.monotonic() + PATIENCE
    while not file.exists() or not file.read_text().strip():
        assert process.poll() is None, "the browser has ended"
        assert time.monotonic() < end, "the browser does not answer"
        time.sleep(0.05)
    return int(file.read_text().splitlines()[0])
