"""Makes pages of every kind and looks at each in headless Chromium, as scripts/pages says."""
import html
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CHROMIUM = os.environ.get("CHROMIUM", "chromium")
PHONE = 390
WIDE = 1280
LIMIT_S = 120
EVIL = "<script>alert(1)</script>|`x`[a](http://evil.example)"
# Of a request that is the browser's own.
NO_ORIGIN = "not an origin"
OVERLOAD = "--request-rate 16 --num-prompts 200 --isl 256 --osl 64 --seed 7".split()
LIMITS = "--goodput ttft:1000 tpot:100 e2el:15000".split()
GATEWAY = "--permits 32 --queue-budget 750ms".split()

# The page stands in a frame of the width that is asked for; this looks at it from outside, as scripts in it are forbidden.
PROBE = """<!doctype html><meta charset="utf-8"><style>body{margin:0}iframe{border:0;display:block}</style>
<iframe id="page" src="%(page)s" width="%(width)d" height="%(height)d"></iframe><pre id="found"></pre>
<script>
const frame = document.getElementById("page");
frame.addEventListener("load", () => {
  const doc = frame.contentDocument, root = doc.documentElement, view = frame.contentWindow;
  const figures = [...doc.querySelectorAll("figure")];
  const drawn = figures.map(f => {
    const svg = f.querySelector("svg[role=img]");
    const box = svg ? svg.getBoundingClientRect() : {width: 0, height: 0};
    const told = svg ? svg.getAttribute("aria-labelledby").split(" ").every(i => doc.getElementById(i).textContent.length > 5) : false;
    const inked = svg ? svg.querySelectorAll("rect,path,circle,text").length : 0;
    return {title: f.querySelector("figcaption").textContent, ok: told && inked > 0 && box.width > 100 && box.height > 20};
  });
  const wide = [...doc.querySelectorAll("main *")].filter(e => !e.closest(".scroll,svg,pre") && e.getBoundingClientRect().right > root.clientWidth + 1);
  document.getElementById("found").textContent = "FOUND" + JSON.stringify({
    title: doc.title, height: root.scrollHeight, overflow: root.scrollWidth - root.clientWidth,
    wide: wide.slice(0, 5).map(e => e.tagName + "." + e.className + ": " + e.textContent.slice(0, 60)),
    dark: view.matchMedia("(prefers-color-scheme: dark)").matches,
    background: view.getComputedStyle(doc.body).backgroundColor,
    answer: doc.querySelector(".answer").textContent.length, figures: drawn,
    scripts: doc.querySelectorAll("script,iframe,img,link,object,embed").length,
  }) + "DNUOF";
});
</script>"""


def elasticserve(binary, folder, *arguments, codes=(0,)):
    done = subprocess.run([binary, *arguments], cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode not in codes:
        sys.exit(f"elasticserve {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")


def make(binary, root, folder):
    """Pages of every kind; each file, and whether it has to hold pictures."""
    run = ["sim", "run", *OVERLOAD, *LIMITS]
    elasticserve(binary, folder, *run, "--name", "direct", "--result-dir", "runs/direct")
    elasticserve(binary, folder, *run, *GATEWAY, "--name", EVIL, "--result-dir", "runs/gateway")
    elasticserve(binary, folder, "report", "runs")
    tenants = root / "config" / "scenarios" / "three-tenants.toml"
    elasticserve(binary, folder, "sim", "run", "--scenario", str(tenants), "--permits", "32", "--result-dir", "tenants")
    check = ["check", "--allow-simulated", "--html", "check.html", "--markdown", "check.md"]
    elasticserve(binary, folder, *check, "--target", "attainment>=0.5", "--target", "ttft_p95<=1000", "runs/gateway", codes=(0, 3, 4))
    export = str(root / "tests" / "data" / "exports" / "vllm" / "refused" / "result.json")
    exports = ["check", export, "--html", "exports.html", "--markdown", "exports.md", *LIMITS]
    elasticserve(binary, folder, *exports, codes=(0, 3, 4, 5))
    sweep = ["sim", "sweep", "--rates", "4:20:4", "--seeds", "0,1", "--permits", "16,32", "--budgets", "none,750ms", "--direct"]
    elasticserve(binary, folder, *sweep, "--num-prompts", "200", *LIMITS, "--html", "sweep.html", "--markdown", "sweep.md")
    elasticserve(binary, folder, "compare", "runs/direct", "runs/gateway", "--html", "compare.html", "--markdown", "compare.md", codes=range(0, 8))
    elasticserve(binary, folder, "demo", "coordinated-omission", "--result-dir", "omission", codes=(0, 1))
    return sorted(folder.rglob("*.html"))


def chromium(profile, *arguments):
    """Runs Chromium to its end. What it wrote to both streams."""
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
        "--disable-features=OptimizationHints,MediaRouter,Translate,AutofillServerCommunication",
        "--allow-file-access-from-files", "--enable-logging=stderr", "--v=0", f"--user-data-dir={profile}",
    ]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return done.stdout, done.stderr


def requests(netlog):
    """The addresses that a page asked for. What the browser asks for itself, about updates and the time, has no origin."""
    text = netlog.read_text()
    try:
        log = json.loads(text)
    except json.JSONDecodeError:
        log = json.loads(text.rstrip().rstrip(",") + "]}")
    asked = [event.get("params", {}) for event in log["events"]]
    return {params["url"] for params in asked if "url" in params and params.get("initiator", NO_ORIGIN) != NO_ORIGIN}


def outside(netlog):
    """Those of them that are not for a file."""
    return [url for url in requests(netlog) if not url.startswith(("file:", "data:", "about:", "chrome"))]


def finds_what_is_outside(folder):
    """Whether a page that asks for something outside is found out."""
    page, netlog = folder / "canary.html", folder / "netlog.json"
    page.write_text('<!doctype html><img alt="" src="http://127.0.0.1:9/canary.png">')
    chromium(folder / "profile", "--virtual-time-budget=10000", f"--log-net-log={netlog}", "--dump-dom", page.as_uri())
    return any("canary.png" in url for url in outside(netlog))


def look(page, folder, mode, width, dark, problems):
    """Opens a page in a way; what is wrong with it goes to the problems. Says how high it is."""
    harness, netlog = folder / "probe.html", folder / "netlog.json"
    harness.write_text(PROBE % {"page": page.as_uri(), "width": width, "height": 900})
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    out, err = chromium(
        folder / "profile", scheme, f"--window-size={max(width, 600)},1000", "--virtual-time-budget=10000",
        f"--log-net-log={netlog}", "--dump-dom", harness.as_uri(),
    )

    def wrong(what):
        problems.append(f"{page.name} ({mode}): {what}")

    for line in err.splitlines():
        if ":CONSOLE" in line:
            wrong(f"said on the console: {line}")
    if asked := outside(netlog):
        wrong(f"asked for {asked}")
    found = re.search(r"FOUND(.*?)DNUOF", out, re.S)
    if not found:
        wrong("could not be looked at")
        return 900
    seen = json.loads(html.unescape(found.group(1)))
    if seen["dark"] != dark:
        wrong("the colour scheme did not take")
    if seen["overflow"] > 0 or seen["wide"]:
        wrong(f"is {seen['overflow']} px too wide: {seen['wide']}")
    if seen["scripts"]:
        wrong("holds elements that load or run something")
    if not seen["answer"]:
        wrong("has no answer")
    if not seen["figures"]:
        wrong("has no picture")
    for figure in seen["figures"]:
        if not figure["ok"]:
            wrong(f"the picture '{figure['title']}' is missing, empty or without words")
    return seen["height"]


def shoot(page, folder, shots, mode, width, height, dark):
    harness = folder / "shot.html"
    harness.write_text(PROBE % {"page": page.as_uri(), "width": width, "height": height})
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    file = shots / f"{page.parent.name}-{page.stem}-{mode}.png"
    chromium(folder / "profile", scheme, f"--window-size={width},{min(height, 12000)}", "--virtual-time-budget=10000", f"--screenshot={file}", harness.as_uri())


def main():
    binary, root = Path(sys.argv[1]).resolve(), Path.cwd()
    kept = Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else None
    problems = []
    with tempfile.TemporaryDirectory(prefix="elasticserve-pages-") as scratch:
        folder = kept or Path(scratch) / "pages"
        folder.mkdir(parents=True, exist_ok=True)
        scratch = Path(scratch)
        if not finds_what_is_outside(scratch):
            problems.append("a page that asks for something outside was not found out")
        pages = make(str(binary), root, folder)
        for page in pages:
            for mode, width, dark in [("light", WIDE, False), ("dark", WIDE, True), ("phone", PHONE, False)]:
                height = look(page, scratch, mode, width, dark, problems)
                if kept:
                    shoot(page, scratch, kept, mode, width, height, dark)
            pdf = page.with_suffix(".pdf")
            chromium(scratch / "profile", f"--print-to-pdf={pdf}", "--no-pdf-header-footer", page.as_uri())
            if not (pdf.is_file() and pdf.read_bytes().startswith(b"%PDF")):
                problems.append(f"{page.name}: cannot be printed")
            if not page.with_suffix(".md").is_file():
                problems.append(f"{page.name}: has no twin in Markdown")
            print(f"looked at {page.relative_to(folder)}")
    for problem in problems:
        print(f"WRONG: {problem}")
    print(f"{len(pages)} pages, {len(problems)} problems")
    sys.exit(1 if problems else 0)


main()
