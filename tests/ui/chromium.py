"""A headless Chromium, told what to do over a pair of pipes (its DevTools protocol)."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PATIENCE_S = 60


def path() -> str | None:
    """Where a Chromium is, if there is one."""
    names = [os.environ.get("COMEM_CHROMIUM"), "chromium", "chromium-browser", "google-chrome"]
    return next(filter(None, (shutil.which(name) for name in names if name)), None)


class Chromium:
    """One page of a browser with a profile of its own."""

    def __init__(self, program: str, width: int = 1280, height: int = 900) -> None:
        self.profile = tempfile.TemporaryDirectory(prefix="comem-ui-", ignore_cleanup_errors=True)
        told, tells = os.pipe()
        answers, answered = os.pipe()
        flags = [
            "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--disable-background-networking", "--hide-scrollbars",
            f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}",
        ]  # fmt: skip
        # Chromium reads from descriptor 3 and writes to 4.
        shell = f'exec "$0" "$@" 3<&{told} 4>&{answered}'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, program, *flags],
            pass_fds=(told, answered),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(told)
        os.close(answered)
        self.tells, self.answers, self.unread, self.number = tells, answers, b"", 0
        self.dialogs: list[str] = []
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.page(f"{domain}.enable")

    def __enter__(self) -> "Chromium":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.profile.cleanup()

    def call(self, method: str, session: str | None = None, **parameters: object) -> dict:
        """Asks the browser, and gives its answer."""
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if session:
            request["sessionId"] = session
        os.write(self.tells, json.dumps(request).encode() + b"\0")
        until = time.monotonic() + PATIENCE_S
        while True:
            told = self._next(until)
            if told.get("id") == self.number:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']}")
                return told["result"]

    def page(self, method: str, **parameters: object) -> dict:
        """Asks the page."""
        return self.call(method, self.session, **parameters)

    def _next(self, until: float) -> dict:
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.answers], [], [], max(0.0, until - time.monotonic()))
            more = os.read(self.answers, 1 << 16) if ready else b""
            if not more:
                raise TimeoutError("the browser does not answer")
            self.unread += more
        line, self.unread = self.unread.split(b"\0", 1)
        told = json.loads(line)
        self._hear(told)
        return told

    def _hear(self, told: dict) -> None:
        about = told.get("params", {})
        if told.get("method") == "Page.javascriptDialogOpening":
            self.dialogs.append(about["message"])
        elif told.get("method") == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif told.get("method") == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.errors.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")

    def go(self, address: str) -> None:
        """Opens an address."""
        self.page("Page.navigate", url=address)

    def run(self, script: str) -> object:
        """What an expression is in the page."""
        told = self.page("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise RuntimeError(f"{script}: {told['exceptionDetails']}")
        return told["result"].get("value")

    def wait(self, condition: str, what: str) -> None:
        """Waits until an expression is true."""
        until = time.monotonic() + PATIENCE_S
        while True:
            # While a page is being opened there may be nothing in it yet.
            value = self.run(f"(() => {{ try {{ return !!({condition}); }} catch {{ return false; }} }})()")
            if value:
                return
            if time.monotonic() > until:
                raise TimeoutError(f"{what}: never happened; the page says: {self.text()}")
            time.sleep(0.02)

    def text(self) -> str:
        """What a reader sees."""
        return str(self.run("document.body.innerText"))

    def set(self, selector: str, value: str) -> None:
        """Fills in a control, as somebody who types would."""
        self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.value = {json.dumps(value)};"
            " e.dispatchEvent(new Event('input', {bubbles: true}));"
            " e.dispatchEvent(new Event('change', {bubbles: true})); })()"
        )

    def click(self, selector: str) -> None:
        """Presses a button or follows a link."""
        self.wait(f"!!document.querySelector({json.dumps(selector)})", f"there is {selector}")
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, text: str) -> None:
        """Presses the button with this text."""
        button = f"[...document.querySelectorAll('button')].find((one) => one.innerText === {json.dumps(text)})"
        self.wait(button, f"there is a button {text}")
        self.run(f"{button}.click()")

    def picture(self, file: str) -> None:
        """Writes what is seen to a PNG, all of the page."""
        size = self.page("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 4000), "scale": 1}
        shot = self.page("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        with open(file, "wb") as out:
            out.write(base64.b64decode(shot["data"]))
