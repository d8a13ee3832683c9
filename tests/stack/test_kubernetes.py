"""Manifests for Kubernetes: whole, least rights, and as the real schemas want them."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

BASE = Path(__file__).parents[2] / "infra" / "kubernetes" / "base"
OVERLAYS = sorted((BASE.parent / "overlays").iterdir())


def load(path: Path) -> list[dict[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # KubeRay's schemas are large
    return [document for document in yaml.load_all(path.read_text(), loader) if document]


def resources() -> list[dict[str, Any]]:
    names = load(BASE / "kustomization.yaml")[0]["resources"]
    return [document for name in names for document in load(BASE / name)]


def key(document: dict[str, Any]) -> tuple[str, str]:
    return document["kind"], document["metadata"]["name"]


def merged(base: Any, patch: Any) -> Any:
    """A patch laid over an object as kustomize does: maps by key, containers by name."""
    if isinstance(base, dict) and isinstance(patch, dict):
        both = copy.deepcopy(base)
        for name, value in patch.items():
            both[name] = merged(base.get(name), value)
        return both
    if isinstance(base, list) and isinstance(patch, list) and base and "name" in base[0]:
        theirs = {item["name"]: item for item in patch}
        kept = [merged(item, theirs.pop(item["name"], item)) for item in base]
        return kept + list(theirs.values())
    return copy.deepcopy(patch)


def overlaid(overlay: Path) -> list[dict[str, Any]]:
    found = {key(document): document for document in resources()}
    for patch in load(overlay / "kustomization.yaml")[0]["patches"]:
        for document in load(overlay / patch["path"]):
            assert key(document) in found, (
                f"{overlay.name} patches {key(document)}, which is not there"
            )
            found[key(document)] = merged(found[key(document)], document)
    return list(found.values())


def pods(document: Any) -> list[dict[str, Any]]:
    """All pod templates in a document."""
    if isinstance(document, list):
        return [pod for item in document for pod in pods(item)]
    if not isinstance(document, dict):
        return []
    own = [document["spec"]] if "containers" in document.get("spec", {}) else []
    return own + [pod for value in document.values() for pod in pods(value)]


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.name)
def test_every_container_says_what_it_needs_and_runs_without_rights(overlay):
    documents = overlaid(overlay)
    found = [pod for document in documents for pod in pods(document)]
    assert found
    for pod in found:
        assert pod["serviceAccountName"]
        for container in pod["containers"]:
            assert container["resources"]["requests"].keys() >= {"cpu", "memory"}
            assert container["resources"]["limits"]["memory"]
            assert ":" in container["image"]


def test_roles_name_kinds_and_verbs_and_never_all():
    rules = [rule for document in resources() for rule in document.get("rules", [])]
    assert rules
    for rule in rules:
        for name in ("apiGroups", "resources", "verbs"):
            assert "*" not in rule[name]
        assert "secrets" not in rule["resources"]


def test_nothing_comes_in_unless_a_policy_names_it():
    policies = [each for each in resources() if each["kind"] == "NetworkPolicy"]
    assert any(
        each["spec"]["podSelector"] == {} and "ingress" not in each["spec"] for each in policies
    )


@pytest.fixture(scope="module")
def kubeconform(tmp_path_factory) -> list[str]:
    """The command with the schemas of KubeRay and, where they can be had, of Kubernetes."""
    told = os.environ.get("HEADRACE_TEST_KUBECONFORM", "").split()
    if len(told) < 2:
        pytest.skip("HEADRACE_TEST_KUBECONFORM names no kubeconform and folder of CRDs")
    program, crds = told[0], Path(told[1])
    schemas = tmp_path_factory.mktemp("schemas")
    for path in crds.glob("*.yaml"):
        for document in load(path):
            spec = document["spec"]
            for version in spec["versions"]:
                name = f"{spec['names']['kind'].lower()}_{version['name']}.json"
                schema = closed(version["schema"]["openAPIV3Schema"])
                (schemas / name).write_text(json.dumps(schema))
    return [
        program,
        "-summary",
        "-strict",
        "-schema-location",
        f"{schemas}/{{{{.ResourceKind}}}}_{{{{.ResourceAPIVersion}}}}.json",
    ]


def closed(schema: Any) -> Any:
    """A schema in which unknown keys are faults, as the API server prunes them silently."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: closed(value) for name, value in schema.items()}
    if "properties" in made and not made.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


def validate(
    kubeconform: list[str], documents: list[dict[str, Any]]
) -> subprocess.CompletedProcess[str]:
    text = yaml.safe_dump_all(documents)
    return subprocess.run(
        [*kubeconform, "-"], input=text, capture_output=True, text=True, check=False
    )


def of_ray(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [document for document in documents if document["apiVersion"].startswith("ray.io")]


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.name)
def test_ray_s_manifests_are_as_kuberay_wants_them(kubeconform, overlay):
    documents = of_ray([*overlaid(overlay), *load(BASE / "ray-job.example.yaml")])
    done = validate(kubeconform, documents)
    assert done.returncode == 0, done.stdout


def test_a_manifest_with_a_fault_fails(kubeconform):
    cluster = of_ray(resources())[0]
    wrong = copy.deepcopy(cluster)
    wrong["spec"]["workerGroupSpecs"][0]["maxReplicas"] = "ten"
    misspelt = copy.deepcopy(cluster)
    misspelt["spec"]["headGroupSpecs"] = misspelt["spec"].pop("headGroupSpec")
    for document in (wrong, misspelt):
        assert validate(kubeconform, [document]).returncode != 0
