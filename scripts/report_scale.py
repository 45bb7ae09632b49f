"""Writes a ledger of many rows, reports on it, and says what that took. As scripts/report-scale says."""
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path

RATE = 1000
LIMIT_BYTES = 2 << 30
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def write(binary, folder, rows):
    """A run folder of so many arrivals of two tenants; the times to first token of its answers, in ns."""
    small = ["sim", "run", "--request-rate", "16", "--num-prompts", "20", "--isl", "256", "--osl", "4",
             "--goodput", "ttft:1000", "--no-report", "--result-dir", str(folder)]
    subprocess.run([binary, *small], check=True, capture_output=True)
    manifest = json.loads((folder / "manifest.json").read_text())
    window = rows * 1_000_000_000 // RATE
    tenant = manifest["plan"]["tenants"][0]
    manifest["plan"].update(count=rows, window_ns=window, rate=float(RATE))
    manifest["plan"]["tenants"] = [tenant | {"name": name, "share": 0.5} for name in ("gold", "rest")]
    manifest["end"]["at_ns"] = window + 20_000_000_000
    (folder / "manifest.json").write_text(json.dumps(manifest))
    chance = random.Random(7)
    ttfts = array("Q")
    # Rows stand in the order of their ends, so in blocks that are turned around they are not in the plan's.
    with open(folder / "ledger.ndjson", "w", buffering=1 << 20) as out:
        for block in range(0, rows, 100):
            for index in reversed(range(block, min(block + 100, rows))):
                planned = index * 1_000_000_000 // RATE
                tenant = "gold" if index % 2 else "rest"
                if index % 10 == 0:
                    out.write(
                        f'{{"index":{index},"attempt":0,"tenant":"{tenant}","state":"rejected","status":429,'
                        f'"reason":"queue_full","planned_ns":{planned},"send_started_ns":{planned},'
                        f'"end_ns":{planned + 12_000_000},"input_planned":256,"output_planned":4}}\n'
                    )
                    continue
                ttft = int(chance.random() ** 3 * 4_000_000_000) + 50_000_000
                ttfts.append(ttft)
                first = planned + ttft
                out.write(
                    f'{{"index":{index},"attempt":0,"tenant":"{tenant}","state":"completed","status":200,'
                    f'"planned_ns":{planned},"send_started_ns":{planned + 40_000},"first_content_ns":{first},'
                    f'"last_content_ns":{first + 120_000_000},"end_ns":{first + 121_000_000},'
                    f'"gaps_ns":[40000000,39000000,41000000],"input_planned":256,"output_planned":4,'
                    f'"output_tokens":4,"output_tokens_from":"usage","cached_tokens":0}}\n'
                )
    return ttfts


def quantile(ordered, p):
    place = (len(ordered) - 1) * p
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def report(binary, folder):
    """Wall and CPU time in s and the peak of memory in bytes of a report."""
    began = time.monotonic()
    with open(os.devnull, "w") as nothing:
        process = subprocess.Popen([binary, "report", str(folder)], stdout=nothing)
        _, status, used = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit("the report failed")
    return time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def main():
    binary, rows = str(Path(sys.argv[1]).resolve()), int(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="elasticserve-scale-") as scratch:
        folder = Path(scratch) / "run"
        ordered = sorted(write(binary, folder, rows))
        size = (folder / "ledger.ndjson").stat().st_size
        wall, cpu, peak = report(binary, folder)
        summary = json.loads((folder / "summary.json").read_text())
        pages = {name: (folder / name).stat().st_size for name in ("report.html", "report.md")}
    print(f"{rows:,} rows, {size / 1e9:.2f} GB")
    print(f"peak memory {peak / 2**20:,.0f} MiB, {peak / rows:.0f} bytes a row")
    print(f"{wall:.1f} s, {cpu:.1f} s of CPU: {cpu / wall:.2f} cores of {os.cpu_count()}, {rows / cpu:,.0f} rows/s of CPU")
    print(f"report.html {pages['report.html'] / 1e3:.0f} kB, report.md {pages['report.md'] / 1e3:.0f} kB")
    wrong = []
    got = summary["latencies"]["ttft"]
    if (summary["planned"], summary["rejected"], got["n"]) != (rows, -(-rows // 10), len(ordered)):
        wrong.append("the counts")
    for name, p in QUANTILES.items():
        expected = quantile(ordered, p) / 1e6
        print(f"TTFT {name}: {got[name]:.6f} ms, sorted by Python {expected:.6f} ms")
        if abs(got[name] - expected) > 1e-6:
            wrong.append(name)
    if peak > LIMIT_BYTES:
        wrong.append("the memory")
    print(f"WRONG: {', '.join(wrong)}" if wrong else "exact, and within 2 GiB")
    sys.exit(1 if wrong else 0)


main()
