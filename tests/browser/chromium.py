"""A headless Chromium, driven by its own driver, that shows report pages from files."""

import base64
import json
import shutil
from pathlib import Path
from typing import Any, Self

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

PHONE = 390  # CSS pixels
DESK = 1_200
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # containers run tests as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def find_chromium() -> tuple[str, str] | None:
    """Return the paths of the browser and its driver, None if either is missing."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


class Screen:
    """One browser window."""

    def __init__(self, paths: tuple[str, str], folder: Path) -> None:
        self._folder = folder
        options = ChromeOptions()
        options.binary_location, driver = paths
        for flag in (*_FLAGS, f"--user-data-dir={folder}/profile"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self._chrome = Chrome(options=options, service=Service(driver))

    def show(self, page: bytes, *, width: int = DESK, dark: bool = False, zoom: float = 1) -> Self:
        """Open a page, `width` CSS pixels wide; what was logged before is forgotten."""
        size = {"width": width, "height": 900, "deviceScaleFactor": zoom, "mobile": width == PHONE}
        self.command("Emulation.setDeviceMetricsOverride", **size)
        self.command(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        file = self._folder / "report.html"
        file.write_bytes(page)
        for kind in ("browser", "performance"):
            self._log(kind)
        self._chrome.get(file.as_uri())
        return self

    def ask(self, script: str) -> Any:
        return self._chrome.execute_script(script)

    def text(self, selector: str) -> str:
        return str(self.ask(f"return document.querySelector({selector!r}).textContent"))

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self._log("browser")]

    def requests(self) -> list[str]:
        """Return the addresses that the page asked for, itself included; data: is no request."""
        events = [json.loads(entry["message"])["message"] for entry in self._log("performance")]
        urls = [
            str(event["params"]["request"]["url"])
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in urls if not url.startswith("data:")]

    def command(self, name: str, **parameters: object) -> dict[str, Any]:
        return dict(self._chrome.execute_cdp_cmd(name, parameters))

    def picture(self, height: int) -> bytes:
        clip = {"x": 0, "y": 0, "width": DESK, "height": height, "scale": 1}
        return base64.b64decode(
            self.command("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        )

    def press(self, keys: str) -> None:
        self._chrome.switch_to.active_element.send_keys(keys)

    def _log(self, kind: str) -> list[dict[str, Any]]:
        # The driver's get_log has no types; this is all that it does.
        return list(self._chrome.execute("getLog", {"type": kind})["value"])

    def close(self) -> None:
        self._chrome.quit()
