"""Reads the files under deploy/ and compares what they ask for with what a running gateway shows."""

import json
import pathlib
import re
import sys
import urllib.request

import yaml

DEPLOY = pathlib.Path(__file__).parent.parent / "deploy"
METRIC = re.compile(r"\belasticserve_[a-z0-9_]+\b")


def main(said: str, save: str) -> None:
    addresses = json.loads(pathlib.Path(said).read_text())
    ask(addresses["listen"])
    text = urllib.request.urlopen(f"http://{addresses['admin']}/metrics", timeout=10).read().decode()
    pathlib.Path(save).write_text(text)
    known = names(text)
    wanted = {}
    for file in ["grafana/dashboard.json", "prometheus/alerts.yml"]:
        for name in METRIC.findall((DEPLOY / file).read_text()):
            wanted.setdefault(name, file)
    missing = {name: file for name, file in wanted.items() if name not in known}
    if missing or len(wanted) < 20:
        sys.exit(f"asked for, but not in /metrics: {missing} (of {len(wanted)})")
    dashboard()
    manifests()
    print(f"{len(wanted)} metrics of dashboard and alerts are all there")


def ask(listen: str) -> None:
    """One streamed answer, so that the histograms have something in them."""
    models = json.load(urllib.request.urlopen(f"http://{listen}/v1/models", timeout=30))
    model = models["data"][0]["id"]
    body = json.dumps({"prompt": "a", "max_tokens": 3, "stream": True, "model": model}).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"http://{listen}/v1/completions", body, headers)
    urllib.request.urlopen(request, timeout=30).read()


def names(text: str) -> set[str]:
    """The names of all series, and of families without any yet."""
    found = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            found |= {name, name + "_total"} if kind == "counter" else {name}
            found |= {name + end for end in ["_bucket", "_sum", "_count"]} if kind == "histogram" else set()
        elif line and not line.startswith("#"):
            found.add(re.split(r"[{ ]", line, maxsplit=1)[0])
    return found


def dashboard() -> None:
    board = json.loads((DEPLOY / "grafana/dashboard.json").read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids)), "panels need ids of their own"
    cells = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not own & cells, f"{panel['title']} lies over another panel"
        cells |= own


def manifests() -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes/elasticserve.yaml").read_text()))
    kinds = {document["kind"]: document for document in documents}
    deployment, service = kinds["Deployment"]["spec"], kinds["Service"]["spec"]
    pod = deployment["template"]
    labels = pod["metadata"]["labels"].items()
    assert deployment["selector"]["matchLabels"].items() <= labels and service["selector"].items() <= labels
    container = pod["spec"]["containers"][0]
    ports = {port["name"] for port in container["ports"]}
    probes = [container[f"{name}Probe"]["httpGet"] for name in ["liveness", "readiness", "startup"]]
    assert {probe["port"] for probe in probes} | {port["targetPort"] for port in service["ports"]} <= ports
    assert {probe["path"] for probe in probes} == {"/livez", "/readyz"}
    seconds = drain_seconds(kinds["ConfigMap"]["data"]["gateway.toml"])
    assert pod["spec"]["terminationGracePeriodSeconds"] > seconds, "it is killed before it has drained"
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    grace = int(compose["gateway"]["stop_grace_period"].removesuffix("s"))
    assert grace > drain_seconds((DEPLOY / "gateway.toml").read_text()), "it is killed before it has drained"
    for service in compose.values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert not source.startswith(".") or (DEPLOY / source).exists(), f"{source} does not exist"


def drain_seconds(toml: str) -> int:
    return sum(int(n) for n in re.findall(r'^drain(?:_delay)? = "(\d+)s"', toml, re.M))


main(*sys.argv[1:])
