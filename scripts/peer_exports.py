"""Runs other load generators against the mock engine and keeps trimmed exports of theirs as test data.

usage: peer_exports.py ELASTICSERVE PEERS OUT [TOOL]

Three cases: `steady` (what the engine can serve), `capped` (20/s for 8 s or 160 requests with 4 in flight allowed) and
`refused` (20/s into a gateway that has 4 permits and no queue). What was planned and what the server saw is printed;
OUT/README.md has it. Texts of prompts and answers, paths and host names are left out of what is kept.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from harness import Processes, free_port, get, wait_for

BINARY, PEERS, OUT = sys.argv[1:4]
ONLY = sys.argv[4:]
# As what paths of the machine that made the exports are kept.
PATH = "tokenizer"
CASES = {"steady": (6, None), "capped": (20, 4), "refused": (20, None)}


def run(command, cwd):
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    if "aiperf" in command[0]:
        environment.pop("HF_HUB_OFFLINE")
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode:
        print(done.stdout[-3000:], done.stderr[-3000:], file=sys.stderr)
    return done.returncode


def vllm(url, rate, cap, work):
    n = 60 if rate < 10 else 100
    command = [f"{PEERS}/v-vllm/bin/vllm", "bench", "serve", "--backend", "openai", "--base-url", url,
               "--endpoint", "/v1/completions", "--model", "mock", "--tokenizer", PATH, "--dataset-name", "random",
               "--random-input-len", "64", "--random-output-len", "32", "--num-prompts", str(n),
               "--request-rate", str(rate), "--seed", "7", "--ignore-eos", "--save-result", "--save-detailed",
               "--result-dir", ".", "--result-filename", "result.json", "--percentile-metrics", "ttft,tpot,itl,e2el"]
    run(command + (["--max-concurrency", str(cap)] if cap else []), work)
    result = json.loads((work / "result.json").read_text())
    result["generated_texts"] = ["" for _ in result["generated_texts"]]
    return {"result.json": json.dumps(result)}, n


def aiperf(url, rate, cap, work):
    seconds = 8
    command = [f"{PEERS}/v-aiperf/bin/aiperf", "profile", "--model", "mock", "--url", url, "--endpoint-type", "chat",
               "--streaming", "--tokenizer", str(work / PATH), "--request-rate", str(rate), "--arrival-pattern",
               "poisson", "--random-seed", "7", "--benchmark-duration", str(seconds), "--isl", "64", "--osl", "32",
               "--extra-inputs", "ignore_eos:true", "--use-server-token-count", "--ui", "none",
               "--output-artifact-dir", "out"]
    run(command + (["--concurrency", str(cap)] if cap else []), work)
    kept = []
    for line in (work / "out" / "profile_export.jsonl").read_text().splitlines():
        row = json.loads(line)
        http = [k for k in row["metrics"] if k.startswith("http_req_")]
        for key in http:
            del row["metrics"][key]
        row["metadata"].pop("worker_id", None)
        row["metadata"].pop("record_processor_id", None)
        kept.append(json.dumps(row))
    summary = json.loads((work / "out" / "profile_export_aiperf.json").read_text())
    summary["input_config"]["artifacts"] = {}
    summary["input_config"]["tokenizer"] = {"name": PATH}
    summary["run_info"] = {k: v for k, v in summary["run_info"].items() if k in ("benchmark_id", "random_seed", "trial")}
    files = {"profile_export.jsonl": "\n".join(kept) + "\n", "profile_export_aiperf.json": json.dumps(summary)}
    return files, rate * seconds


def guidellm(url, rate, cap, work):
    seconds = 8
    profile = f"kind=constant,rate={rate}" + (f",max_concurrency={cap}" if cap else "")
    run([f"{PEERS}/v-guidellm/bin/guidellm", "run", "--backend", f"kind=openai_http,target={url},model=mock",
         "--profile", profile, "--constraint", f"kind=max_duration,seconds={seconds}",
         "--tokenizer", f"kind=hf_auto,model={work / PATH}",
         "--data", "kind=synthetic_text,prompt_tokens=64,output_tokens=32",
         "--output", f"kind=json,path={work / 'result.json'}"], work)
    result = json.loads((work / "result.json").read_text())
    result["metadata"].pop("platform", None)
    result["config"]["spec"]["tokenizer"]["model"] = PATH
    result["config"]["spec"]["outputs"] = []
    for benchmark in result["benchmarks"]:
        benchmark["config"]["environment"] = {}
        metrics = benchmark["metrics"]
        kept = {name: {"successful": {"percentiles": metrics[name]["successful"]["percentiles"]}}
                for name in ("time_to_first_token_ms", "request_latency")}
        benchmark["metrics"] = {"request_totals": metrics["request_totals"], **kept}
        for rows in benchmark["requests"].values():
            for place, row in enumerate(rows or []):
                info = {key: row["info"][key] for key in ("status", "timings", "error")}
                kept = {key: row[key] for key in ("request_start_time", "request_end_time", "output_tokens")}
                rows[place] = {"info": info, **kept}
    return {"result.json": json.dumps(without_nulls(result))}, rate * seconds


def without_nulls(value):
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return [without_nulls(v) for v in value] if isinstance(value, list) else value


def infperf(url, rate, cap, work):
    seconds = 8
    config = {
        "load": {"type": "poisson", "interval": 1, "num_workers": 1, "stages": [{"rate": rate, "duration": seconds}],
                 **({"worker_max_concurrency": cap} if cap else {})},
        "api": {"type": "completion", "streaming": True},
        "server": {"type": "vllm", "model_name": "mock", "base_url": url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(work / PATH)},
        "data": {"type": "random",
                 "input_distribution": {"min": 60, "max": 68, "mean": 64, "std_dev": 2, "total_count": 400},
                 "output_distribution": {"min": 32, "max": 32, "mean": 32, "std_dev": 0, "total_count": 400}},
        "storage": {"local_storage": {"path": "out"}},
        "report": {"request_lifecycle": {"summary": True, "per_stage": True, "per_request": True}},
    }
    # YAML is a superset of JSON.
    (work / "config.yml").write_text(json.dumps(config))
    run([f"{PEERS}/v-infperf/bin/inference-perf", "--config_file", "config.yml"], work)
    rows = json.loads((work / "out" / "per_request_lifecycle_metrics.json").read_text())
    for row in rows:
        row["request"] = row["response"] = None
        response = row["info"].get("response_metrics") or {}
        response["response_chunks"] = []
        # One time for each of the client's own tokens; those of the chunks say the same.
        response["output_token_times"] = []
    files = {"per_request_lifecycle_metrics.json": json.dumps(rows)}
    for name in ("summary_lifecycle_metrics.json", "stage_0_lifecycle_metrics.json"):
        files[name] = (work / "out" / name).read_text()
    return files, rate * seconds


TOOLS = {"vllm": vllm, "aiperf": aiperf, "guidellm": guidellm, "inference-perf": infperf}


def served(port):
    lines = get(f"http://127.0.0.1:{port}/metrics").splitlines()
    return sum(float(l.rsplit(" ", 1)[1]) for l in lines if l.startswith("vllm:request_success_total"))


def main():
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="peer-exports-"))
    texts = [str(p.resolve()) for p in sorted(pathlib.Path("docs").glob("*.md"))]
    make = str(pathlib.Path(__file__).with_name("tokenizer.py"))
    subprocess.run([f"{PEERS}/v-guidellm/bin/python", make, str(scratch / PATH), *texts], check=True)
    with Processes() as peers:
        port, door, admin = free_port(), free_port(), free_port()
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        peers.start(BINARY, "mock", "--listen", f"127.0.0.1:{port}", "--model", "mock", **quiet)
        peers.start(BINARY, "gateway", "--backend", f"http://127.0.0.1:{port}", "--listen", f"127.0.0.1:{door}",
                    "--admin", f"127.0.0.1:{admin}", "--permits", "4", "--queue-depth", "1", "--queue-budget", "50ms",
                    **quiet)
        for up in (port, door):
            wait_for(f"a server on port {up}", lambda up=up: get(f"http://127.0.0.1:{up}/v1/models"), 20)
        for tool, export in TOOLS.items():
            for case, (rate, cap) in CASES.items():
                if ONLY and tool not in ONLY:
                    continue
                work = scratch / tool / case
                work.mkdir(parents=True)
                shutil.copytree(scratch / PATH, work / PATH)
                before = served(port)
                url = f"http://127.0.0.1:{door if case == 'refused' else port}"
                files, planned = export(url, rate, cap, work)
                kept = pathlib.Path(OUT) / tool / case
                kept.mkdir(parents=True, exist_ok=True)
                for name, text in files.items():
                    scrubbed = text.replace(str(scratch), "/scratch").replace(url, "http://127.0.0.1:8000")
                    (kept / name).write_text(scrubbed)
                size = sum(len(t) for t in files.values())
                print(f"{tool} {case}: {planned} planned, {served(port) - before:.0f} ended at the server, {size} bytes",
                      flush=True)
    shutil.rmtree(scratch)


main()
