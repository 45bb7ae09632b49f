"""Lets a real Prometheus watch a gateway under load, and asks it what operators will ask it."""

import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse

import yaml

from harness import Processes, free_port, get, wait_for

BINARY, PROMETHEUS, PROMTOOL = sys.argv[1:4]
DEPLOY = pathlib.Path(__file__).parent.parent / "deploy"
TENANTS = ["gold", "batch"]
# Seconds of load; more of it than the engine can serve.
LOAD = 10
CONFIG = """
listen = "127.0.0.1:{port}"
admin = "127.0.0.1:{admin}"
[[backends]]
url = "{mock}"
permits = 8
[health]
interval = "200ms"
[queue]
order = "wfq"
admission = "predict"
shadow = "fcfs+none"
[predict]
profile = "gb10-qwen3-8b-fp8"
[[tenants]]
name = "gold"
weight = 3
slo = {{ ttft = "2s", e2e = "10s" }}
[[tenants]]
name = "batch"
slo = {{ ttft = "4s", e2e = "20s" }}
"""


class Prometheus:
    """The API of a Prometheus."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, path, **query):
        text = get(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query, doseq=True)}")
        answer = json.loads(text)
        assert answer["status"] == "success" and not answer.get("warnings"), answer
        return answer["data"]

    def value(self, query):
        """The value of a query that has one."""
        found = self.ask("query", query=query)["result"]
        return float(found[0]["value"][1]) if found else None

    def samples(self, query, start, end):
        """All numbers of a query over a time, second by second."""
        series = self.ask("query_range", query=query, start=start, end=end, step=1)["result"]
        return [float(value) for one in series for _, value in one["values"] if not math.isnan(float(value))]


def configure(folder, gateway, engine):
    """The scrape configuration of compose.yaml, with the targets and the times of this check."""
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    shutil.copy(DEPLOY / "prometheus/alerts.yml", folder)
    config["global"].update(scrape_interval="500ms", scrape_timeout="500ms", evaluation_interval="500ms")
    targets = {"elasticserve": gateway, "vllm": engine}
    assert {job["job_name"] for job in config["scrape_configs"]} == set(targets)
    for job in config["scrape_configs"]:
        job["static_configs"] = [{"targets": [targets[job["job_name"]]]}]
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    subprocess.run([PROMTOOL, "check", "config", str(file)], check=True, stdout=subprocess.DEVNULL)
    return file


def offer(url, folder):
    """Two tenants at once, whose clients ask again as SDKs do; their summaries."""
    common = ["--url", url, "--isl", "64", "--osl", "24", "--ignore-eos", "--retries", "2", "--json"]
    common += ["--duration", str(LOAD), "--max-send-lag", "5s", "--measure-ceiling", "off", "--max-client-cpu", "1"]
    runs = []
    for seed, tenant in enumerate(TENANTS):
        own = ["--header", f"x-elasticserve-tenant={tenant}", "--request-rate", "30", "--seed", str(seed)]
        command = [BINARY, "load", *common, *own, "--result-dir", str(folder / tenant)]
        runs.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    said = [run.communicate(timeout=120)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], said
    return [json.loads(text) for text in said]


def queries():
    """What the dashboard asks, by panel, with its variables at "All"."""
    board = json.loads((DEPLOY / "grafana/dashboard.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            query = re.sub(r"\$(instance|tenant)\b", ".+", target["expr"]).replace("$__rate_interval", "5s")
            assert "$" not in query, query
            yield panel["title"], query
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield f"variable {variable['name']}", re.match(r"label_values\((.+), (\w+)\)$", variable["definition"])


def check_panels(prometheus, start, end):
    empty, count = [], 0
    for title, query in queries():
        count += 1
        if isinstance(query, re.Match):
            found = prometheus.ask(f"label/{query[2]}/values", **{"match[]": query[1]})
        else:
            found = prometheus.samples(query, start, end)
        if not found:
            empty.append((title, query))
    assert not empty, f"no data for {empty}"
    assert count > 25, count
    return count


def check_rules(prometheus):
    groups = prometheus.ask("rules")["groups"]
    rules = {rule["name"]: rule for group in groups for rule in group["rules"]}
    written = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"]
    names = {rule.get("alert") or rule.get("record") for group in written for rule in group["rules"]}
    assert set(rules) == names, set(rules) ^ names
    bad = {name: rule.get("lastError") for name, rule in rules.items() if rule["health"] != "ok"}
    assert not bad, bad
    return len(names)


def check_metadata(prometheus, metrics):
    """Every family came over with its type and its help."""
    known = prometheus.ask("metadata", limit=10_000)
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", metrics, re.M))
    for name, kind in types.items():
        # The format that Prometheus asks for names a counter without its end.
        found = known.get(name) or known.get(name.removesuffix("_total")) or known.get(f"{name}_total")
        assert found and found[0]["type"] == kind and found[0]["help"], (name, kind, found)
    return len(types)


def check_counters(prometheus, tenant, summary):
    """The gateway's counters are those of the generator, as Prometheus has them."""
    of = lambda name, more="": prometheus.value(f'sum({name}{{tenant="{tenant}"{more}}})') or 0
    assert of("elasticserve_slo_results_total") == summary["attempts"]
    assert of("elasticserve_retries_total") == summary["retries"] > 0
    assert summary["attempts"] - summary["retries"] == summary["planned"]
    assert of("elasticserve_requests_total", ',outcome="finished"') == summary["completed"] > 0


def main():
    port, admin, mock_port, own = (free_port() for _ in range(4))
    mock, url = f"http://127.0.0.1:{mock_port}", f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as name, Processes() as processes:
        folder = pathlib.Path(name)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        processes.start(BINARY, "mock", "--listen", f"127.0.0.1:{mock_port}", "--speed", "4", **quiet)
        (folder / "gateway.toml").write_text(CONFIG.format(port=port, admin=admin, mock=mock))
        processes.start(BINARY, "gateway", "--config", str(folder / "gateway.toml"))
        wait_for("the gateway is ready", lambda: get(f"http://127.0.0.1:{admin}/readyz") == "ready\n", 20)
        config = configure(folder, f"127.0.0.1:{admin}", f"127.0.0.1:{mock_port}")
        storage = ["--storage.tsdb.path", str(folder / "data"), "--log.level", "warn"]
        listen = ["--web.listen-address", f"127.0.0.1:{own}"]
        processes.start(PROMETHEUS, "--config.file", str(config), *storage, *listen)
        prometheus = Prometheus(own)
        jobs = ("elasticserve", "vllm")
        up = lambda: all(prometheus.value(f'up{{job="{job}"}}') == 1 for job in jobs)
        wait_for("both targets are up", up, 30)

        start = time.time()
        summaries = offer(url, folder)
        total = sum(summary["attempts"] for summary in summaries)
        scraped = lambda: prometheus.value("sum(elasticserve_slo_results_total)") == total
        wait_for("all that was counted is scraped", scraped, 10)
        for tenant, summary in zip(TENANTS, summaries):
            check_counters(prometheus, tenant, summary)
        targets = prometheus.ask("targets")["activeTargets"]
        assert [(t["health"], t["lastError"]) for t in targets] == [("up", "")] * 2, targets
        panels, rules = check_panels(prometheus, start, time.time()), check_rules(prometheus)
        metrics = get(f"http://127.0.0.1:{admin}/metrics")
        families = check_metadata(prometheus, metrics)
        subprocess.run([PROMTOOL, "check", "metrics"], input=metrics, text=True, check=True)
        assert not alerts(prometheus) & {"ElasticServeDown", "ElasticServeBackendDown", "ElasticServeNoBackend"}

        engine, gateway = processes.all[:2]
        engine.kill()
        wait_for("the backend is missed", lambda: "ElasticServeBackendDown" in alerts(prometheus), 20)
        assert "ElasticServeNoBackend" in alerts(prometheus)
        gateway.terminate()
        wait_for("the gateway is missed", lambda: "ElasticServeDown" in alerts(prometheus), 20)
    good = sum(summary["good"] for summary in summaries)
    print(f"{good} good of {sum(s['planned'] for s in summaries)} in {total} attempts, as the ledgers have it")
    print(f"prometheus: {panels} queries of the dashboard, {rules} rules, {families} families: all is well")


def alerts(prometheus):
    """Alerts that are at least pending."""
    return {alert["labels"]["alertname"] for alert in prometheus.ask("alerts")["alerts"]}


main()
