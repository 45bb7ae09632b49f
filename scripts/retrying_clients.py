"""Measures what clients that ask again leave of the goodput at twice the capacity."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

from harness import Processes, free_port, get, wait_for

BINARY, *SEEDS = sys.argv[1:]
# The engine of the profile ends some 8.5 answers of this size a second, of which twice as many are asked for.
RATE, SECONDS, INPUT, OUTPUT = 17, 40, 256, 64
MOST = 2
LEAST = 0.9
CONFIG = """
listen = "127.0.0.1:{port}"
admin = "127.0.0.1:{admin}"
[[backends]]
url = "{mock}"
permits = 32
[queue]
{queue}
[slo]
ttft = "1s"
e2e = "15s"
"""
POLICIES = {
    "fcfs+budget:750ms": 'budget = "750ms"',
    "fcfs+predict": 'admission = "predict"\n[predict]\nprofile = "gb10-qwen3-8b-fp8"',
    "least-slack+predict": 'order = "least-slack"\nadmission = "predict"\n[predict]\nprofile = "gb10-qwen3-8b-fp8"',
}


def run(policy, retries, seed):
    """The generator's figures of one run, and the gateway's sums of all that was offered and of what was asked again."""
    port, admin, mock = free_port(), free_port(), free_port()
    with tempfile.TemporaryDirectory() as name, Processes() as processes:
        folder = pathlib.Path(name)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        processes.start(BINARY, "mock", "--listen", f"127.0.0.1:{mock}", **quiet)
        told = {"port": port, "admin": admin, "mock": f"http://127.0.0.1:{mock}", "queue": POLICIES[policy]}
        (folder / "gateway.toml").write_text(CONFIG.format(**told))
        processes.start(BINARY, "gateway", "--config", str(folder / "gateway.toml"), **quiet)
        wait_for("the gateway is ready", lambda: get(f"http://127.0.0.1:{admin}/readyz") == "ready\n", 20)
        command = [BINARY, "load", "--url", f"http://127.0.0.1:{port}", "--json", "--result-dir", str(folder / "run")]
        command += ["--request-rate", str(RATE), "--duration", str(SECONDS), "--isl", str(INPUT), "--osl", str(OUTPUT)]
        command += ["--ignore-eos", "--goodput", "ttft:1000", "e2el:15000", "--seed", seed, "--retries", str(retries)]
        # A tenth of the limit on the first token is what the generator may be late.
        command += ["--measure-ceiling", "off", "--max-send-lag", "100ms", "--max-client-cpu", "1"]
        kept = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        done = subprocess.run(command, text=True, timeout=SECONDS + 200, check=False, **kept)
        if done.returncode:
            sys.exit(f"the run says nothing: {json.loads(done.stdout)['invalid_because'] if done.stdout else command}")
        metrics = get(f"http://127.0.0.1:{admin}/metrics")
    sums = [
        sum(float(value) for value in re.findall(rf"^elasticserve_{name}_total\{{.*\}} (\S+)$", metrics, re.M))
        for name in ("slo_results", "retries")
    ]
    return json.loads(done.stdout), *sums


def main():
    worst = 1.0
    print(f"{'policy':<22}{'seed':>5}  {'without: good':>14}  {'with: good':>11}{'attempts':>10}{'demand':>8}  ratio")
    for policy in POLICIES:
        for seed in SEEDS or ["7"]:
            once, offered, again = run(policy, 0, seed)
            assert (offered, again) == (once["planned"], 0), (offered, again, once["planned"])
            more, offered, again = run(policy, MOST, seed)
            assert (offered, again) == (more["attempts"], more["retries"]), (offered, again, more["attempts"])
            assert offered - again == more["planned"] == once["planned"] and again > 0.5 * once["planned"]
            ratio = more["good"] / once["good"]
            worst = min(worst, ratio)
            counts = f"{once['good']:>7} of {once['planned']:<4}  {more['good']:>11}{offered:>10.0f}{offered - again:>8.0f}"
            print(f"{policy:<22}{seed:>5}  {counts}  {ratio:.2f}", flush=True)
    assert worst >= LEAST, f"goodput falls to {worst:.2f} of that without retries; at least {LEAST} must be left"
    print("retrying clients: all is well")


main()
