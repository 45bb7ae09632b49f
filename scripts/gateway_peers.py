"""Measures gateways side by side, each alone in front of the same server, and prints tables for docs/validation.md.

usage: gateway_peers.py ELASTICSERVE BENCH SCHED [--quick] [--no-install] [--json FILE] [GATEWAY ...]

The server answers at once and costs little; server and clients are `benches/peers`, a process of one thread each, so
three processes share the machine. For each gateway:

- memory (proportional set size of its processes) after one request, with 1,000 and with 10,000 open streams;
- CPU of a request, user and system time of its processes over closed loops of 32 clients: plain answers, streams of 19
  events all at once, and the same with each event in a write of its own;
- added latency: the first piece of an answer at a fixed rate, in turns to the server itself and through the gateway.
  Streams of 64 events 5 ms apart at 200/s, and all at once at 200/s and 1,000/s.

`elasticserve` goes first come, first served. `elasticserve-scheduling` has four tenants, fair queueing and admission by
prediction, and in the closed loops 16 permits, so that half of the requests wait in its queue.

CPU of a request is robust on a shared machine; latencies are to be read against the direct ones of the same minute.
"""
import argparse
import contextlib
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request

from harness import free_port, wait_for
from peers.gateways import FITS, GATEWAYS, Lab, Missing

CLIENTS = 32
#: Permits of `elasticserve-scheduling` in the closed loops.
SEATS = 16
#: Everything ends after so long; what has not been measured by then is said.
LIMIT_S = 14 * 60
START_S = 60
LOOPS = {"plain": "plain", "burst": "burst:19", "single": "single:19"}
OPEN = [
    ("5 ms apart, 200/s", "paced:64:5", 200),
    ("at once, 200/s", "burst:64", 200),
    ("at once, 1,000/s", "burst:64", 1000),
]


class Effort:
    """How long each part takes."""

    def __init__(self, quick):
        self.loop_s, self.open_s, self.rounds = (1.5, 1.0, 1) if quick else (5.0, 2.0, 3)
        self.streams = [1000] if quick else [1000, min(10000, FITS)]


class Tree:
    """A process and its descendants."""

    def __init__(self, pid):
        self.root = pid

    def pids(self):
        children = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):
                    stat = pathlib.Path(f"/proc/{entry}/stat").read_text()
                    children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
        found, queue = [], [self.root]
        while queue:
            found.append(queue.pop())
            queue.extend(children.get(found[-1], []))
        return found

    def cpu_s(self):
        total = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    def memory_mib(self):
        total = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return total / 1024

    def threads(self):
        return sum(len(os.listdir(f"/proc/{pid}/task")) for pid in self.pids() if os.path.exists(f"/proc/{pid}/task"))


class Bench:
    """The server and the clients."""

    def __init__(self, program):
        self.program = program
        self.server = subprocess.Popen([program, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.backend = json.loads(self.server.stdout.readline())

    def run(self, *words):
        words = [str(word) for word in words]
        done = subprocess.run([self.program, *words], capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise OSError(f"{words[0]}: {(done.stderr.strip().splitlines() or ['?'])[-1][:160]}")
        return json.loads(done.stdout)

    @contextlib.contextmanager
    def hold(self, *words):
        command = [self.program, "hold", *(str(word) for word in words)]
        clients = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            yield json.loads(clients.stdout.readline())
        finally:
            clients.stdin.close()
            clients.wait(timeout=60)

    def end(self):
        self.server.stdin.close()
        self.server.wait(timeout=60)


class Running:
    """A gateway that runs."""

    def __init__(self, launch, port, admin, log):
        self.launch, self.addr, self.admin = launch, f"127.0.0.1:{port}", admin
        with open(log, "w") as output:
            self.process = subprocess.Popen(launch.command, env=launch.environment, cwd=launch.cwd, stdout=output,
                                            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        self.tree = Tree(self.process.pid)

    def ask(self):
        body = {"model": "m", "messages": [{"role": "user", "content": "plain"}], "max_tokens": 16}
        headers = {"content-type": "application/json", "authorization": "Bearer bench"}
        headers.update(word.split("=", 1) for word in self.launch.headers)
        request = urllib.request.Request(f"http://{self.addr}/v1/chat/completions", json.dumps(body).encode(), headers)
        if self.process.poll() is not None:
            raise AssertionError(f"it ended with {self.process.returncode}")
        return json.load(urllib.request.urlopen(request, timeout=10))["choices"]

    def permits(self, backend, count):
        url = f"http://127.0.0.1:{self.admin}/admin/backends/{backend}"
        body, headers = json.dumps({"permits": count}).encode(), {"content-type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=10).read()

    def end(self):
        pids = self.tree.pids()
        self.process.terminate()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in pids[1:]:
            with contextlib.suppress(OSError):
                os.kill(pid, 9)


def measure(name, running, bench, effort, told):
    """Everything about one gateway; what was measured before something failed stays."""
    headers = running.launch.headers
    running.ask()
    time.sleep(1)
    told["memory_idle"], told["threads"] = running.tree.memory_mib(), running.tree.threads()
    if name == "elasticserve-scheduling":
        running.permits(bench.backend, SEATS)
    told["cpu"] = {}
    for loop, shape in LOOPS.items():
        before = running.tree.cpu_s()
        result = bench.run("closed", running.addr, shape, CLIENTS, effort.loop_s, *headers)
        cpu = running.tree.cpu_s() - before
        told["cpu"][loop] = {**result, "cpu_us": cpu * 1e6 / result["done"] if result["done"] else None}
    if name == "elasticserve-scheduling":
        running.permits(bench.backend, 25000)
    told["open"] = {}
    for what, shape, rate in OPEN:
        loop = told["cpu"]["burst"]
        highest = loop["done"] / loop["seconds"]
        if highest < rate:
            told["open"][what] = {"problem": f"at most {highest:.0f}/s"}
            continue
        told["open"][what] = bench.run("open", running.addr, bench.backend, shape, rate, effort.open_s, effort.rounds,
                                       *headers)
    told["memory"] = {}
    for streams in effort.streams:
        with bench.hold(running.addr, streams, *headers) as held:
            time.sleep(0.5)
            told["memory"][streams] = {**held, "mib": running.tree.memory_mib()}
        if held["problem"]:
            break
        time.sleep(0.5)


def prepare(name, binary, lab, folder, backend):
    """What it takes to start a gateway; installs it if need be."""
    folder.mkdir()
    ports = free_port(), free_port()
    try:
        return GATEWAYS[name](binary, lab, folder, *ports, backend), *ports, folder / "log"
    except Missing as missing:
        return str(missing)


def one(name, prepared, bench, effort):
    told, running = {}, None
    log = prepared[-1]
    try:
        told["version"] = prepared[0].version
        running = Running(*prepared)
        wait_for(f"{name} answers", running.ask, START_S)
        measure(name, running, bench, effort, told)
    except (AssertionError, OSError, KeyError, ValueError, subprocess.TimeoutExpired) as error:
        told["problem"] = f"{error}"
        if log.exists():
            told["problem"] += ": " + " ".join(log.read_text(errors="replace").split())[-200:]
    finally:
        if running:
            running.end()
    return told


def number(value, digits=0):
    return "–" if value is None else f"{value:,.{digits}f}"


def failed(result):
    """What went wrong of a part, short enough for a table."""
    if not result:
        return "–"
    count = result.get("failed") or 0
    return f"failed: {result.get('problem')}" if count or result.get("problem") else None


def cell_cpu(told, loop):
    result = told.get("cpu", {}).get(loop)
    return failed(result) or number(result["cpu_us"])


def cell_added(told, what):
    result = told.get("open", {}).get(what)
    if not result or result.get("problem"):
        return result["problem"] if result else "–"
    direct, through = result["direct"], result["through"]
    problem = failed(direct) or failed(through)
    return problem or " / ".join(number(through[f"first_{p}_ms"] - direct[f"first_{p}_ms"], 2) for p in ("p50", "p99"))


def cell_memory(told, streams):
    result = told.get("memory", {}).get(streams)
    if not result:
        return "–"
    return number(result["mib"]) if not result["problem"] else f"{result['open']}: {result['problem']}"


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def tables(all_told, effort):
    measured = {name: told for name, told in all_told.items() if "missing" not in told}
    good = lambda told, loop: not failed(told["cpu"].get(loop))
    per_second = lambda told, loop: number(1e6 / told["cpu"][loop]["cpu_us"]) if good(told, loop) else "–"
    yield table(
        ["gateway", "CPU of a plain request, us", "of 19 events at once", "of 19 events one by one",
         "plain requests per CPU second", "streams (at once) per CPU second"],
        [[f"{name} {told.get('version', '')}", *(cell_cpu(told, loop) for loop in LOOPS), per_second(told, "plain"),
          per_second(told, "burst")] for name, told in measured.items() if "cpu" in told])
    yield table(
        ["added to the first event, p50 / p99 in ms", *(what for what, _, _ in OPEN)],
        [[name, *(cell_added(told, what) for what, _, _ in OPEN)] for name, told in measured.items() if "open" in told])
    yield table(
        ["memory in MiB", "idle", *(f"{streams:,} open streams" for streams in effort.streams)],
        [[name, number(told["memory_idle"], 1), *(cell_memory(told, streams) for streams in effort.streams)]
         for name, told in measured.items() if "memory_idle" in told])
    direct = [(what, told["open"][what]["direct"]) for told in measured.values() for what, _, _ in OPEN
              if "direct" in told.get("open", {}).get(what, {})]
    for what, _, _ in OPEN:
        values = [(d["first_p50_ms"], d["first_p99_ms"]) for w, d in direct if w == what]
        values = [pair for pair in values if None not in pair]
        if values:
            p50, p99 = (sorted(column) for column in zip(*values))
            spread = lambda ms: f"{ms[len(ms) // 2]:.2f} ms ({ms[0]:.2f} to {ms[-1]:.2f})"
            yield f"Direct, {what}, middle and range over the turns of all: p50 {spread(p50)}, p99 {spread(p99)}."
    for name, told in all_told.items():
        if "missing" in told:
            yield f"{name}: missing, {told['missing']}"
        if "problem" in told:
            yield f"{name}: stopped, {told['problem']}"


def scheduler(program, left_s):
    """The cost of the scheduler alone, as its bench prints it."""
    try:
        done = subprocess.run([program, "--bench"], capture_output=True, text=True, timeout=max(1, left_s))
        return done.stdout
    except subprocess.TimeoutExpired as error:
        return f"{(error.stdout or b'').decode()}(not done in time)"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("elasticserve")
    parser.add_argument("bench")
    parser.add_argument("sched")
    parser.add_argument("gateways", nargs="*", help=", ".join(GATEWAYS))
    parser.add_argument("--quick", action="store_true", help="short runs, to see that everything works")
    parser.add_argument("--no-install", action="store_true", help="leave out what is not installed yet")
    parser.add_argument("--json", help="a file for all that was measured")
    arguments = parser.parse_intermixed_args()
    unknown = set(arguments.gateways) - set(GATEWAYS)
    if unknown:
        parser.error(f"no such gateway: {', '.join(sorted(unknown))}; there are {', '.join(GATEWAYS)}")
    lab = Lab(os.environ.get("ELASTICSERVE_LAB", "target/lab"), not arguments.no_install)
    effort, all_told, bench = Effort(arguments.quick), {}, Bench(os.path.abspath(arguments.bench))
    names = [name for name in GATEWAYS if not arguments.gateways or name in arguments.gateways]
    if effort.streams[-1] not in (1000, 10000):
        print(f"{effort.streams[-1]:,} streams in place of 10,000: that many fit the limit of "
              f"{resource.getrlimit(resource.RLIMIT_NOFILE)[1]} files", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="gateway-peers-") as folder:
        binary = str(pathlib.Path(arguments.elasticserve).resolve())
        prepared = {name: prepare(name, binary, lab, pathlib.Path(folder) / name, bench.backend) for name in names}
        # Installing takes its own time.
        deadline = time.monotonic() + LIMIT_S
        for name in names:
            if isinstance(prepared[name], str):
                all_told[name] = {"missing": prepared[name]}
                continue
            if time.monotonic() > deadline:
                all_told[name] = {"missing": f"no time was left of {LIMIT_S // 60} minutes"}
                continue
            print(f"{name} …", file=sys.stderr, flush=True)
            all_told[name] = one(name, prepared[name], bench, effort)
            print(json.dumps(all_told[name]), file=sys.stderr, flush=True)
    bench.end()
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(all_told, indent=1))
    for part in tables(all_told, effort):
        print(part, end="\n\n")
    if not arguments.quick:
        print("The scheduler alone, `cargo bench --bench sched`:\n")
        print(scheduler(arguments.sched, deadline + 60 - time.monotonic()))


main()
