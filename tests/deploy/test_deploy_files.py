"""The files in deploy/ say what Ray, Kubernetes and edgesim understand."""

from __future__ import annotations

import copy
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
import yaml
from rich.console import Console
from small_fleets import killed_at_its_end
from thorough import thorough_only

from edgesim.assembly.preparation import prepare
from edgesim.cli import app
from edgesim.fleet.run import run_scenario
from edgesim.scenario import load_scenario

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERAY = Path(__file__).with_name("kuberay-1.5.1.yaml")


def versions() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if re.match(r"^[\w.-]+==[\w.]+$", line))


def test_what_the_image_is_made_of_is_sent_and_nothing_large():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    ignored = {line for line in lines if line and not line.startswith("#")}
    assert {".git", ".venv", "runs", "site", "build", "**/__pycache__"} <= ignored
    copied = re.findall(r"^COPY \S+ (.*) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    sources = {source for names in copied for source in names.split()}
    assert "edgesim" in sources
    assert not sources & ignored


def parsed(words: list[str]) -> Any:
    """Parse a command line of edgesim as the program does, and run nothing."""
    assert words[0] == "edgesim"
    command = typer.main.get_command(app).commands[words[1]]
    return command.make_context(words[1], words[2:])


def edgesim_commands(text: str) -> list[list[str]]:
    """Command lines of edgesim in a shell line, without what comes after `||` or `&&`.

    Also those that are quoted for, or follow the options of, a program that runs them elsewhere.
    """
    parts = [part.strip() for part in re.split(r"\|\||&&", text)]
    found = []
    for part in parts:
        inner = re.fullmatch(r"ray exec \S+ '(.*)'|ray job submit .* -- (.*)", part)
        words = shlex.split(inner[1] or inner[2] if inner else part, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            words.pop(0)
        if words and Path(words[0]).name == "edgesim":
            found.append(["edgesim", *words[1:]])
    return found


def read(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text())


@pytest.fixture(scope="module", params=["cluster-launcher.yaml", "cloud-launcher.yaml"])
def launcher(request):
    return read(request.param)


@pytest.fixture(scope="module")
def job():
    return read("rayjob.yaml")


@pytest.fixture(scope="module", params=["rayjob.yaml", "raycluster-gpu.yaml"])
def resource(request):
    """What is given to kubectl."""
    return read(request.param)


def cluster_of(resource: Any) -> Any:
    return resource["spec"].get("rayClusterSpec", resource["spec"])


def test_launchers_keep_to_the_schema_of_ray(launcher):
    import ray
    from ray.autoscaler._private.util import prepare_config, validate_config

    schema = json.loads((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text())
    errors = jsonschema.Draft7Validator(schema).iter_errors(launcher)
    assert [f"{list(error.path)}: {error.message}" for error in errors] == []
    with pytest.raises(jsonschema.ValidationError):  # the schema does refuse what it does not know
        jsonschema.validate({**launcher, "min_workers": 2}, schema, jsonschema.Draft7Validator)
    complete = prepare_config(launcher)  # with what Ray adds where nothing is said
    validate_config(complete)
    assert "ray-wheels" not in json.dumps(complete), "Ray's own set-up installs another version"


def test_the_cloud_launcher_rents_what_it_may_and_has_no_devices_on_its_head():
    cloud = read("cloud-launcher.yaml")
    head, worker = (cloud["available_node_types"][name] for name in ("head", "worker"))
    assert cloud["head_node_type"] == "head"
    assert head["resources"] == {"CPU": 0}
    assert worker["min_workers"] == worker["max_workers"] == cloud["max_workers"]


def test_launchers_start_nodes_with_a_token(launcher):
    if "worker_ips" in launcher["provider"]:
        assert launcher["max_workers"] == len(launcher["provider"]["worker_ips"])
    assert "~/.ray/auth_token" in launcher["file_mounts"], "where Ray looks for it"
    for commands, kind in (("head", "--head"), ("worker", "--address=$RAY_HEAD_IP:6379")):
        (start,) = (c for c in launcher[f"{commands}_start_ray_commands"] if "ray start" in c)
        assert "RAY_AUTH_MODE=token" in start
        assert kind in start.split()


def options_of_ray_start() -> set[str]:
    from ray.scripts.scripts import start

    return {option for parameter in start.params for option in parameter.opts}


def test_options_of_ray_start_exist(launcher):
    commands = [*launcher["head_start_ray_commands"], *launcher["worker_start_ray_commands"]]
    used = {word.partition("=")[0] for line in commands for word in line.split() if "--" in word}
    assert used <= options_of_ray_start()
    assert "--dashboard-host" in used


def test_parameters_of_ray_start_exist(resource):
    cluster = cluster_of(resource)
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    used = {f"--{name}" for group in groups for name in group["rayStartParams"]}
    assert used <= options_of_ray_start()
    assert "--dashboard-host" in used


def test_the_job_resumes_or_runs_with_options_that_edgesim_has(job):
    words = shlex.split(job["spec"]["entrypoint"])
    assert words[:2] == ["sh", "-c"]
    resume, run = (parsed(command) for command in edgesim_commands(words[2]))
    assert (resume.info_name, run.info_name) == ("resume", "run")
    assert resume.params["address"] == run.params["address"] == "auto"
    assert resume.params["run"] == "s3://BUCKET/runs/quickstart"
    scenario = Path(str(run.params["scenario"])).relative_to("/opt/edgesim")
    loaded = load_scenario(ROOT / scenario, run.params["overrides"])
    assert loaded.fleet.placement == "spread"


def test_the_job_goes_on_where_it_began(job):
    """Both commands name the same store, unchanged by how options are read."""
    words = shlex.split(job["spec"]["entrypoint"])
    resume, run = (parsed(command) for command in edgesim_commands(words[2]))
    assert str(run.params["out"]) == resume.params["run"]


@thorough_only
@pytest.mark.long
def test_the_entry_point_of_the_job_runs_once_and_a_retry_ends_well_whatever_it_finds(
    job, tmp_path, monkeypatch
):
    """As the operator passes it on: by a shell to `ray job submit`, and by Ray to a shell."""
    place = tmp_path / "run"
    line = job["spec"]["entrypoint"].replace("s3://BUCKET/runs/quickstart", str(place))
    line = line.replace("/opt/edgesim", str(ROOT)).replace("--address auto", "--inline")
    calls = tmp_path / "calls"
    program = tmp_path / "bin" / "edgesim"
    program.parent.mkdir()
    real = shlex.join([sys.executable, "-m", "edgesim"])
    shorter = ["training.rounds=4", "evaluation.samples=20"]
    short = " ".join(f"--set {setting}" for setting in shorter)
    program.write_text(
        f'#!/bin/sh\necho "$1" >> {calls}\n[ "$1" = run ] && set -- "$@" {short}\n'
        f'cd {ROOT} && exec {real} "$@"\n'
    )
    program.chmod(0o700)
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}

    def submitted() -> subprocess.CompletedProcess[str]:
        show = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))"]
        words = subprocess.run(
            ["bash", "-c", f"{shlex.join(show)} {line} ;"], capture_output=True, check=True
        )
        joined = subprocess.list2cmdline(json.loads(words.stdout))
        return subprocess.run(
            ["/bin/sh", "-c", joined],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=250,
        )

    assert "$" not in line
    for found, expected in (
        ("nothing", ["resume", "run"]),
        ("a finished run", ["resume"]),
        ("an interrupted run", ["resume"]),
    ):
        if found == "an interrupted run":
            shutil.rmtree(place)
            scenario = load_scenario(ROOT / "scenarios" / "quickstart.yaml", shorter)
            with killed_at_its_end(monkeypatch):
                run_scenario(prepare(scenario), place, inline=True, console=Console(quiet=True))
        done = submitted()
        assert done.returncode == 0, done.stdout + done.stderr
        assert calls.read_text().split() == expected, found
        assert (place / "summary.json").is_file()
        calls.unlink()


def schema_of(name: str, fields: dict[str, Any]) -> Any:
    """The JSON schema of a type in the list of KubeRay's fields."""

    def of(kind: Any) -> Any:
        if isinstance(kind, list):
            return {"type": "array", "items": of(kind[0])}
        if isinstance(kind, dict):
            return {"enum": kind["words"]}
        if kind == "strings":
            return {"type": "object", "additionalProperties": {"type": "string"}}
        if kind == "quantities":
            return {"type": "object", "additionalProperties": {"type": ["string", "integer"]}}
        return schema_of(kind, fields) if kind in fields else {"type": kind}

    return {
        "type": "object",
        "properties": {field: of(kind) for field, kind in fields[name].items()},
        "required": fields["required"].get(name, []),
        "additionalProperties": False,
    }


def test_resources_have_fields_that_kuberay_publishes(resource):
    fields = yaml.safe_load(KUBERAY.read_text())
    schema = schema_of(resource["kind"], fields)
    errors = jsonschema.Draft202012Validator(schema).iter_errors(resource)
    assert [f"{list(error.path)}: {error.message}" for error in errors] == []
    wrong = copy.deepcopy(resource)
    cluster_of(wrong)["authOptions"]["mode"] = "secret"
    cluster_of(wrong)["headGroupSpec"]["rayStartParams"]["num-cpus"] = 0
    cluster_of(wrong)["workerGroups"] = []
    assert len(list(jsonschema.Draft202012Validator(schema).iter_errors(wrong))) == 3


def test_the_operator_makes_the_token_and_sends_it(resource):
    """With variables in the containers alone its requests for the state of a job are refused."""
    assert resource["apiVersion"] == "ray.io/v1"
    cluster = cluster_of(resource)
    assert cluster["authOptions"] == {"mode": "token"}
    templates = [cluster["headGroupSpec"]["template"]]
    templates += [group["template"] for group in cluster["workerGroupSpecs"]]
    if "submitterPodTemplate" in resource["spec"]:
        templates.append(resource["spec"]["submitterPodTemplate"])
    containers = [c for template in templates for c in template["spec"]["containers"]]
    assert len({container["image"] for container in containers}) == 1
    variables = [v["name"] for container in containers for v in container.get("env", [])]
    assert not [name for name in variables if name.startswith("RAY_AUTH")]
    for group in cluster["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


def test_workers_with_a_gpu_ask_for_it_and_are_let_onto_its_nodes():
    (group,) = read("raycluster-gpu.yaml")["spec"]["workerGroupSpecs"]
    pod = group["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert [t["key"] for t in pod["tolerations"]] == ["nvidia.com/gpu"]
    assert container["image"].endswith("-gpu")


def test_versions_are_those_that_edgesim_is_tested_with(resource):
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    page = (ROOT / "docs" / "deploy.md").read_text()
    ray = versions()["ray"]
    assert cluster_of(resource)["rayVersion"] == ray
    assert f"ARG RAY={ray}-py311-cpu\nFROM rayproject/ray:${{RAY}}\n" in dockerfile
    assert f"RAY={ray}-py311-gpu" in dockerfile
    assert f"RAY={ray}-py311-gpu" in page
    for copied in re.findall(r"^COPY --chown=\S+ (.+) \S+$", dockerfile, re.MULTILINE):
        assert all((ROOT / name).exists() for name in copied.split())


def lines_of_the_page() -> list[str]:
    page = (ROOT / "docs" / "deploy.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    return [line for b in blocks for line in re.sub(r"\\\n\s*", "", b).splitlines()]


def test_commands_of_the_page_are_commands_of_edgesim():
    page = (ROOT / "docs" / "deploy.md").read_text()
    commands = [parsed(words) for line in lines_of_the_page() for words in edgesim_commands(line)]
    assert [command.info_name for command in commands].count("run") == 5
    assert {command.info_name for command in commands} == {"run", "resume"}
    for command in commands:
        if command.info_name == "run":
            place = str(command.params["scenario"])
            scenario = ROOT / place[place.index("scenarios/") :]
            load_scenario(scenario, command.params["overrides"] or ())
    for name in re.findall(r"\b(deploy/[\w.-]+)", page):
        assert (ROOT / name).is_file(), name


def test_whatever_joins_a_cluster_from_the_page_has_the_token():
    """Also what is run on a node by `ray exec`, whose shell knows no variables of this one."""
    elsewhere = [line for line in lines_of_the_page() if line.startswith("ray exec ")]
    assert len(elsewhere) == 2
    for line in elsewhere:
        assert "RAY_AUTH_MODE=token" in line, line
    page = (ROOT / "docs" / "deploy.md").read_text()
    for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL):
        if "ray job submit" in block or "ray start" in block:
            assert "export RAY_AUTH_MODE=token" in block, block


def test_options_of_ray_job_exist():
    from ray.dashboard.modules.job.cli import job_cli_group

    jobs = [line for line in lines_of_the_page() if line.startswith("ray job ")]
    assert {line.split()[2] for line in jobs} == {"submit", "logs", "stop"}
    for line in jobs:
        command = job_cli_group.commands[line.split()[2]]
        known = {option for parameter in command.params for option in parameter.opts}
        used = [w for w in shlex.split(line.partition(" -- ")[0]) if w.startswith("--")]
        assert set(used) <= known, line
