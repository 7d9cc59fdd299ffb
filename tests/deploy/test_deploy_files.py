"""The files in deploy/ say what Ray, Kubernetes and edgesim understand."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
import yaml

from edgesim.cli import app
from edgesim.scenario import load_scenario

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def versions() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if re.match(r"^[\w.-]+==[\w.]+$", line))


def parsed(words: list[str]) -> Any:
    """Parse a command line of edgesim as the program does, and run nothing."""
    assert words[0] == "edgesim"
    command = typer.main.get_command(app).commands[words[1]]
    return command.make_context(words[1], words[2:])


def edgesim_commands(text: str) -> list[list[str]]:
    """Command lines of edgesim in a shell line, without what comes after `||` or `&&`."""
    return [
        shlex.split(part.strip())
        for part in re.split(r"\|\||&&", text)
        if part.strip().startswith("edgesim ")
    ]


@pytest.fixture(scope="module")
def launcher():
    return yaml.safe_load((DEPLOY / "cluster-launcher.yaml").read_text())


@pytest.fixture(scope="module")
def job():
    return yaml.safe_load((DEPLOY / "rayjob.yaml").read_text())


def test_the_cluster_launcher_keeps_to_the_schema_of_ray(launcher):
    import ray

    schema = json.loads((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text())
    errors = jsonschema.Draft7Validator(schema).iter_errors(launcher)
    assert [f"{list(error.path)}: {error.message}" for error in errors] == []
    with pytest.raises(jsonschema.ValidationError):  # the schema does refuse what it does not know
        jsonschema.validate({**launcher, "min_workers": 2}, schema, jsonschema.Draft7Validator)


def test_the_cluster_launcher_starts_nodes_with_a_token(launcher):
    assert launcher["max_workers"] == len(launcher["provider"]["worker_ips"])
    assert "~/.ray/auth_token" in launcher["file_mounts"], "where Ray looks for it"
    for commands, kind in (("head", "--head"), ("worker", "--address=$RAY_HEAD_IP:6379")):
        (start,) = (c for c in launcher[f"{commands}_start_ray_commands"] if "ray start" in c)
        assert "RAY_AUTH_MODE=token" in start
        assert kind in start.split()


def options_of_ray_start() -> set[str]:
    from ray.scripts.scripts import start

    return {option for parameter in start.params for option in parameter.opts}


def test_options_of_ray_start_exist(launcher, job):
    commands = [*launcher["head_start_ray_commands"], *launcher["worker_start_ray_commands"]]
    used = {word.partition("=")[0] for line in commands for word in line.split() if "--" in word}
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    used |= {f"--{name}" for group in groups for name in group["rayStartParams"]}
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


def test_all_containers_have_the_image_and_the_token(job):
    spec = job["spec"]
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = spec["rayClusterSpec"]
    templates = [
        spec["submitterPodTemplate"],
        cluster["headGroupSpec"]["template"],
        *(group["template"] for group in cluster["workerGroupSpecs"]),
    ]
    containers = [c for template in templates for c in template["spec"]["containers"]]
    assert len(containers) == 3
    assert len({container["image"] for container in containers}) == 1
    for container in containers:
        variables = {variable["name"]: variable for variable in container["env"]}
        assert variables["RAY_AUTH_MODE"]["value"] == "token"
        assert variables["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]["key"] == "auth_token"
    for group in cluster["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


def test_versions_are_those_that_edgesim_is_tested_with(job):
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    ray = versions()["ray"]
    assert job["spec"]["rayClusterSpec"]["rayVersion"] == ray
    assert f"FROM rayproject/ray:{ray}-py311-cpu" in dockerfile
    for copied in re.findall(r"^COPY --chown=\S+ (.+) \S+$", dockerfile, re.MULTILINE):
        assert all((ROOT / name).exists() for name in copied.split())


def test_commands_of_the_page_are_commands_of_edgesim():
    page = (ROOT / "docs" / "deploy.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    commands = [command for line in lines for command in edgesim_commands(line)]
    assert {parsed(command).info_name for command in commands} == {"run", "resume"}
    for name in re.findall(r"\b(deploy/[\w.-]+)", page):
        assert (ROOT / name).is_file(), name
