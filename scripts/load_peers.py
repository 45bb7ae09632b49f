"""Measures load generators side by side against the truth server and the null server of `benches/load`.

usage: load_peers.py ELASTICSERVE BENCH [--streams N,N] [--rates N,N] [TOOL ...]

Truth: N streams begin within a second; each has its first token 50 ms after its request and 99 more, 10 ms apart. The
server writes down when it wrote each; a tool's error is its own quantile less the server's.

Rate: constant arrivals at a rate for 3 s against a server that answers at once. A rate is delivered if every request
ended well and the sends took at most 2 % longer than planned. (What is late by less does not show in what these tools
write; `scripts/load-bench` has our own send lag.)

CPU is user and system time of the tool and its children, less that of a run of two requests: its start-up. Memory is the
peak over the tool's processes of their resident sets, sampled, so pages that they share count more than once.
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import threading
import time

FIRST_MS, GAP_MS, TOKENS = 50, 10, 100
RATE_SECONDS = 3
LATE = 1.02
LIMIT_S = 120
TOKENIZER = "tokenizer"


class Server:
    """A server of the bench, in a process of its own."""

    def __init__(self, bench, *words):
        self.process = subprocess.Popen([bench, "serve", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = f"http://{self.process.stdout.readline().strip()}"

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=30)


class Memory(threading.Thread):
    """The peak of the resident memory of a process and its descendants, in MiB."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.root, self.peak, self.done = pid, 0.0, threading.Event()

    def run(self):
        while not self.done.wait(0.2):
            self.peak = max(self.peak, sum(self.of(pid) for pid in self.tree()))

    def tree(self):
        children = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    stat = pathlib.Path(f"/proc/{entry}/stat").read_text()
                except OSError:
                    continue
                children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
        found, queue = [], [self.root]
        while queue:
            found.append(queue[-1])
            queue.extend(children.get(queue.pop(), []))
        return found

    @staticmethod
    def of(pid):
        try:
            return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
        except (OSError, IndexError):
            return 0.0


def run(command, cwd):
    """Runs a tool; its CPU seconds, peak memory and wall time, or why there are none."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}
    if "aiperf" in command[0]:
        environment.pop("HF_HUB_OFFLINE")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    memory = Memory(process.pid)
    memory.start()
    try:
        said, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None, f"not done in {LIMIT_S} s"
    finally:
        memory.done.set()
    if process.returncode:
        return None, f"exit {process.returncode}: {said.strip().splitlines()[-1][:160] if said.strip() else ''}"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {"cpu_s": cpu, "memory_mib": memory.peak}, None


class Reading:
    """What a tool wrote of a run: times in ms, sends in seconds."""

    def __init__(self, ttfts, gaps, sends, completed):
        self.ttfts, self.gaps, self.sends, self.completed = ttfts, gaps, sends, completed


def elasticserve(binary, url, rate, count, tokens, work):
    command = [binary, "load", "--url", url, "--model", "m", "--request-rate", str(rate), "--arrival-pattern", "constant",
               "--num-prompts", str(count), "--isl", "16", "--osl", str(tokens), "--ignore-eos", "--result-dir", "run",
               "--name", "peers", "--max-send-lag", "60"]

    def read():
        rows = [json.loads(line) for line in (work / "run" / "ledger.ndjson").read_text().splitlines()]
        done = [row for row in rows if row["state"] == "completed"]
        return Reading([(row["first_content_ns"] - row["send_started_ns"]) / 1e6 for row in done],
                       [gap / 1e6 for row in done for gap in row.get("gaps_ns", [])],
                       [row["send_started_ns"] / 1e9 for row in rows], len(done))
    return command, read


def vllm(binary, url, rate, count, tokens, work):
    # An infinite burstiness is a constant rate.
    command = [binary, "bench", "serve", "--backend", "openai", "--base-url", url, "--endpoint", "/v1/completions",
               "--model", "m", "--tokenizer", TOKENIZER, "--dataset-name", "random", "--random-input-len", "16",
               "--random-output-len", str(tokens), "--num-prompts", str(count), "--request-rate", str(rate),
               "--burstiness", "1000000", "--ignore-eos", "--save-result", "--save-detailed", "--result-dir", ".",
               "--result-filename", "result.json", "--ready-check-timeout-sec", "0"]

    def read():
        result = json.loads((work / "result.json").read_text())
        good = [place for place, error in enumerate(result["errors"]) if not error]
        return Reading([result["ttfts"][place] * 1e3 for place in good],
                       [gap * 1e3 for place in good for gap in result["itls"][place]],
                       result["start_times"], result["completed"])
    return command, read


def aiperf(binary, url, rate, count, tokens, work):
    command = [binary, "profile", "--model", "m", "--url", url, "--endpoint-type", "completions", "--streaming",
               "--tokenizer", str(work / TOKENIZER), "--request-rate", str(rate), "--arrival-pattern", "constant", "--request-count",
               str(count), "--isl", "16", "--osl", str(tokens), "--use-server-token-count", "--ui", "none",
               "--output-artifact-dir", "out"]

    def read():
        rows = [json.loads(line) for line in (work / "out" / "profile_export.jsonl").read_text().splitlines()]
        done = [row["metrics"] for row in rows if "time_to_first_token" in row["metrics"]]
        return Reading([metrics["time_to_first_token"]["value"] for metrics in done],
                       [gap for metrics in done for gap in metrics.get("inter_chunk_latency", {"value": []})["value"]],
                       [row["metadata"]["request_start_ns"] / 1e9 for row in rows], len(done))
    return command, read


def guidellm(binary, url, rate, count, tokens, work):
    command = [binary, "run", "--backend", f"kind=openai_http,target={url},model=m", "--profile",
               f"kind=constant,rate={rate}", "--constraint", f"kind=max_requests,count={count}", "--tokenizer",
               f"kind=hf_auto,model={work / TOKENIZER}", "--data",
               f"kind=synthetic_text,prompt_tokens=16,output_tokens={tokens}", "--output",
               f"kind=json,path={work / 'result.json'}"]

    def read():
        requests = json.loads((work / "result.json").read_text())["benchmarks"][0]["requests"]
        done = [row["info"]["timings"] for row in requests["successful"]]
        every = [row["info"]["timings"] for rows in requests.values() for row in rows or []]
        # It writes no gaps.
        return Reading([(t["first_token_iteration"] - t["request_start"]) * 1e3 for t in done], [],
                       [t["request_start"] for t in every if t.get("request_start")], len(done))
    return command, read


def inference_perf(binary, url, rate, count, tokens, work):
    fixed = {"std_dev": 0, "total_count": count}
    config = {
        "load": {"type": "constant", "interval": 0, "num_workers": 1,
                 "stages": [{"rate": rate, "duration": max(1, round(count / rate))}]},
        "api": {"type": "completion", "streaming": True},
        "server": {"type": "vllm", "model_name": "m", "base_url": url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(work / TOKENIZER)},
        "data": {"type": "random", "input_distribution": {"min": 16, "max": 16, "mean": 16, **fixed},
                 "output_distribution": {"min": tokens, "max": tokens, "mean": tokens, **fixed}},
        "storage": {"local_storage": {"path": "out"}},
        "report": {"request_lifecycle": {"summary": True, "per_stage": False, "per_request": True}},
    }
    # YAML is a superset of JSON.
    (work / "config.yml").write_text(json.dumps(config))

    def read():
        rows = json.loads((work / "out" / "per_request_lifecycle_metrics.json").read_text())
        done = [row for row in rows if not row["error"]]
        times = [row["info"]["response_metrics"]["chunk_times"] for row in done]
        return Reading([(t[0] - row["start_time"]) * 1e3 for row, t in zip(done, times) if t],
                       [(b - a) * 1e3 for t in times for a, b in zip(t, t[1:])],
                       [row["start_time"] for row in rows], len(done))
    return [binary, "--config_file", "config.yml"], read


def oha(binary, url, rate, count, tokens, work):
    body = json.dumps({"model": "m", "prompt": "x", "max_tokens": tokens, "stream": True})
    command = [binary, "-n", str(count), "-q", str(rate), "-c", "256", "--no-tui", "--output-format", "json", "-o",
               "result.json", "-m", "POST", "-T", "application/json", "-d", body, f"{url}/v1/completions"]

    def read():
        result = json.loads((work / "result.json").read_text())
        # It knows no events, and says how long the whole took rather than when each was sent.
        return Reading([], [], [0, result["summary"]["total"]], result["statusCodeDistribution"].get("200", 0))
    return command, read


TOOLS = {
    "elasticserve": (elasticserve, None),
    "vllm bench serve": (vllm, "v-vllm/bin/vllm"),
    "aiperf": (aiperf, "v-aiperf/bin/aiperf"),
    "guidellm": (guidellm, "v-guidellm/bin/guidellm"),
    "inference-perf": (inference_perf, "v-infperf/bin/inference-perf"),
    "oha": (oha, None),
}


def quantile(values, p):
    ordered = sorted(values)
    place = p * (len(ordered) - 1)
    low = int(place)
    return ordered[low] + (place - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


def above(cost, startup, per):
    """What a cost is above the start-up's, for each of `per`; None where it is lost in the start-up's own spread."""
    return (cost - startup) / max(1, per) if cost > 1.2 * startup else None


class Bench:
    def __init__(self, bench, scratch):
        self.bench, self.scratch, self.number = bench, scratch, 0

    def folder(self):
        self.number += 1
        work = self.scratch / str(self.number)
        work.mkdir()
        if (self.scratch / TOKENIZER).exists():
            (work / TOKENIZER).symlink_to(self.scratch / TOKENIZER)
        return work

    def once(self, tool, binary, url, rate, count, tokens):
        work = self.folder()
        command, read = tool(binary, url, rate, count, tokens, work)
        cost, problem = run(command, work)
        if problem:
            return None, None, problem
        try:
            return read(), cost, None
        except (OSError, KeyError, ValueError, IndexError) as error:
            return None, None, f"its result cannot be read: {error!r}"

    def startup(self, tool, binary):
        server = Server(self.bench, "null")
        _, cost, problem = self.once(tool, binary, server.url, 2, 2, 1)
        server.end()
        return cost or {"cpu_s": 0.0, "memory_mib": 0.0}, problem

    def truth(self, tool, binary, streams, startup):
        file = self.folder() / "truth.ndjson"
        server = Server(self.bench, "truth", str(file), str(FIRST_MS), str(GAP_MS))
        reading, cost, problem = self.once(tool, binary, server.url, streams, streams, TOKENS)
        server.end()
        if problem:
            return {"streams": streams, "problem": problem}
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        rows = [row for row in rows if len(row["gaps_ns"]) == TOKENS - 1]
        ttfts = [row["ttft_ns"] / 1e6 for row in rows]
        gaps = [gap / 1e6 for row in rows for gap in row["gaps_ns"]]
        error = lambda read, true, p: quantile(read, p) - quantile(true, p) if read and true else None
        return {
            "streams": streams, "completed": reading.completed,
            "ttft_error_ms": {f"p{round(p * 100)}": error(reading.ttfts, ttfts, p) for p in (0.5, 0.99)},
            "gap_error_ms": {f"p{round(p * 100)}": error(reading.gaps, gaps, p) for p in (0.5, 0.99)},
            "cpu_us_per_event": above(cost["cpu_s"] * 1e6, startup["cpu_s"] * 1e6, reading.completed * TOKENS),
            "memory_kib_per_stream": above(cost["memory_mib"] * 1024, startup["memory_mib"] * 1024, streams),
            "memory_mib": cost["memory_mib"],
        }

    def rate(self, tool, binary, rate, startup):
        server = Server(self.bench, "null")
        count = rate * RATE_SECONDS
        reading, cost, problem = self.once(tool, binary, server.url, rate, count, 1)
        server.end()
        if problem:
            return {"rate": rate, "delivered": False, "problem": problem}
        took = max(reading.sends) - min(reading.sends) if reading.sends else 0
        return {
            "rate": rate, "completed": reading.completed, "asked": count, "sends_took_s": took,
            "delivered": reading.completed >= count and took <= RATE_SECONDS * LATE,
            "ttft_p99_ms": quantile(reading.ttfts, 0.99) if reading.ttfts else None,
            "cpu_us_per_request": above(cost["cpu_s"] * 1e6, startup["cpu_s"] * 1e6, reading.completed),
        }


def present(binary):
    """The tools that are there, each with its binary."""
    peers, found = os.environ.get("PEERS", ""), {}
    for name, (tool, inside) in TOOLS.items():
        path = {"elasticserve": binary, "oha": os.environ.get("OHA", "")}.get(name) or os.path.join(peers, inside or "-")
        if os.access(path, os.X_OK):
            found[name] = (tool, os.path.abspath(path))
        else:
            print(f"{name}: left out, there is no {path or 'OHA'}", file=sys.stderr)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("elasticserve")
    parser.add_argument("bench")
    parser.add_argument("tools", nargs="*")
    parser.add_argument("--streams", default="100,1000")
    parser.add_argument("--rates", default="100,400,1600,6400")
    args = parser.parse_intermixed_args()
    numbers = lambda text: [int(word) for word in text.split(",") if word]
    with tempfile.TemporaryDirectory(prefix="load-peers-") as folder:
        scratch = pathlib.Path(folder)
        python = os.path.join(os.environ.get("PEERS", ""), "v-guidellm/bin/python")
        if os.access(python, os.X_OK):
            texts = [str(p.resolve()) for p in sorted(pathlib.Path("docs").glob("*.md"))]
            make = pathlib.Path("scripts/tokenizer.py").resolve()
            subprocess.run([python, str(make), str(scratch / TOKENIZER), *texts], check=True)
        bench, told = Bench(os.path.abspath(args.bench), scratch), {}
        for name, (tool, binary) in present(args.elasticserve).items():
            if args.tools and name not in args.tools:
                continue
            startup, problem = bench.startup(tool, binary)
            told[name] = {"startup": startup, "problem": problem, "truth": [], "rates": []}
            print(f"{name}: start-up {startup} {problem or ''}", file=sys.stderr)
            for streams in [] if name == "oha" else numbers(args.streams):
                told[name]["truth"].append(bench.truth(tool, binary, streams, startup))
                print(f"  {told[name]['truth'][-1]}", file=sys.stderr)
            for rate in numbers(args.rates):
                told[name]["rates"].append(bench.rate(tool, binary, rate, startup))
                print(f"  {told[name]['rates'][-1]}", file=sys.stderr)
                if not told[name]["rates"][-1]["delivered"]:
                    break
                time.sleep(1)
    json.dump(told, sys.stdout, indent=1)
    print()


main()
