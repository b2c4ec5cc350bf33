#!/usr/bin/env python3
"""Takes the pictures of docs/start/look.md: five views of a run, by the clicks that the page names.

    python -m scripts.dashboard_screenshots runs/demo

Needs turnwise[view,browser] and a Chromium. Not here: the views (packages/turnwise-view).
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from turnwise_environments.tools.browser.chromium import find_chromium

FOLDER = Path(__file__).resolve().parents[1] / "docs/start"
SIZE = {"width": 1120, "height": 700}
MOST_BYTES = 150_000


def main() -> None:
    """Start the dashboard, click through it, and end it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args()
    command = [sys.executable, "-m", "turnwise", "view", str(given.run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            take(address_of(server), given.out)
        finally:
            server.terminate()


def address_of(server: "subprocess.Popen[str]") -> str:
    """The address that the program prints."""
    assert server.stdout is not None
    for line in server.stdout:
        found = re.search(r"http://\S+token=\S+", line)
        if found:
            return found[0]
    raise SystemExit("the dashboard did not start")


def take(address: str, folder: Path) -> None:
    """The pictures, each after its click."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium())
        page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
        page.goto(address)
        keep(page, folder / "look_1_runs.png", "main .card")
        page.click("main .card h2 a")
        keep(page, folder / "look_2_run.png", "main .doors")
        page.click("text=Why did episodes fail?")
        keep(page, folder / "look_3_failed.png", "main .found")
        page.click("main .found a >> nth=0")
        keep(page, folder / "look_4_episode.png", "main .why")
        page.click("text=Show them")
        keep(page, folder / "look_5_tokens.png", "main .token")
        browser.close()


def keep(page: Any, file: Path, shown: str) -> None:
    """A picture of what is in the window, once `shown` is there."""
    page.wait_for_selector(shown)
    page.mouse.move(0, 0)
    page.wait_for_timeout(300)
    page.screenshot(path=str(file))
    size = file.stat().st_size
    if size > MOST_BYTES:
        raise SystemExit(f"{file} has {size} bytes, more than {MOST_BYTES}")
    print(f"{file}: {size} bytes")


if __name__ == "__main__":
    main()
