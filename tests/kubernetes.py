"""Whether the manifests of deploy/kubernetes are what Kubernetes takes, as far as can be seen without it: each field is
one of its kind's, with a value of the right type (`kubectl apply --validate=strict` refuses others), and names agree
with each other, with the code and with the page on launchers. Prints lines of TAP."""

import pathlib
import re
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A name that DNS takes, as most objects have.
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")

# Kinds of values: a type, a pattern that a text matches as a whole, a set of words, a list of one kind, or a table of
# fields, those with a star required. From the reference of the API (v1, batch/v1 of Kubernetes 1.31; JobSet v0.7).
META = {"name*": LABEL, "namespace": LABEL, "labels": dict, "annotations": dict}
RESOURCES = {"cpu": QUANTITY, "memory": QUANTITY}
SECRET = {"secretKeyRef*": {"name*": LABEL, "key*": str, "optional": bool}}
VARIABLE = {"name*": re.compile(r"[A-Za-z_][A-Za-z0-9_]*"), "value": str, "valueFrom": SECRET}
CONTAINER = {
    "name*": LABEL,
    "image*": str,
    "command": [str],
    "args": [str],
    "env": [VARIABLE],
    "resources": {"requests": RESOURCES, "limits": RESOURCES},
}
POD = {"subdomain": LABEL, "restartPolicy*": {"Never", "OnFailure"}, "containers*": [CONTAINER]}
JOB = {
    "completionMode": {"Indexed", "NonIndexed"},
    "completions": int,
    "parallelism": int,
    "backoffLimit": int,
    "template*": {"metadata": META, "spec*": POD},
}
SERVICE = {"clusterIP": {"None"}, "publishNotReadyAddresses": bool, "selector": dict, "ports": [dict]}
JOB_SET = {
    "network": {"enableDNSHostnames": bool, "publishNotReadyAddresses": bool, "subdomain": LABEL},
    "failurePolicy": {"maxRestarts": int},
    "replicatedJobs*": [{"name*": LABEL, "replicas": int, "template*": {"metadata": META, "spec*": JOB}}],
}
KINDS = {
    ("v1", "Service"): SERVICE,
    ("batch/v1", "Job"): JOB,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): JOB_SET,
}

failures = 0
count = 0


def verdict(what, found):
    """A line of TAP; `found` are the things that are wrong."""
    global failures, count
    count += 1
    failures += bool(found)
    print(f"{'not ok' if found else 'ok'} {count} - {what}")
    for line in found:
        print(f"#   {line}")


def wrong(value, kind, path):
    """What is wrong with a value."""
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            return [f"{path}: expected fields"]
        known = {name.rstrip("*"): of for name, of in kind.items()}
        lines = [f"{path}.{name}: there is no such field" for name in value if name not in known]
        lines += [f"{path}.{name[:-1]}: is missing" for name in kind if name.endswith("*") and name[:-1] not in value]
        for name in known.keys() & value.keys():
            lines += wrong(value[name], known[name], f"{path}.{name}")
        return lines
    if isinstance(kind, list):
        if not isinstance(value, list) or not value:
            return [f"{path}: expected a list"]
        return [line for index, one in enumerate(value) for line in wrong(one, kind[0], f"{path}[{index}]")]
    if isinstance(kind, set):
        return [] if value in kind else [f"{path}: {value!r} is none of {sorted(kind)}"]
    if isinstance(kind, re.Pattern):
        return [] if isinstance(value, str) and kind.fullmatch(value) else [f"{path}: {value!r} does not fit"]
    # A number is no truth value, although Python takes one for the other.
    return [] if type(value) is kind else [f"{path}: {value!r} is no {kind.__name__}"]


def wrong_object(one):
    kind = KINDS.get((one.get("apiVersion"), one.get("kind")))
    if kind is None:
        return [f"there is no {one.get('kind')} of {one.get('apiVersion')}"]
    return wrong(one, {"apiVersion*": str, "kind*": str, "metadata*": META, "spec*": kind}, one["kind"])


def same(what, *values):
    return [] if len(set(values)) == 1 else [f"{what}: {', '.join(map(repr, values))}"]


def wrong_names(file, objects):
    """What does not go together within a manifest."""
    by_kind = {one["kind"]: one for one in objects}
    if "JobSet" in by_kind:
        spec = by_kind["JobSet"]["spec"]
        job, subdomain = spec["replicatedJobs"][0]["template"]["spec"], spec["network"]["subdomain"]
        found = []
    else:
        service, one = by_kind["Service"], by_kind["Job"]
        job, subdomain = one["spec"], one["spec"]["template"]["spec"]["subdomain"]
        found = same("the service and the pods' subdomain", service["metadata"]["name"], subdomain)
        found += same("the service selects", service["spec"]["selector"]["job-name"], one["metadata"]["name"])
    (container,) = job["template"]["spec"]["containers"]
    variables = {variable["name"]: variable for variable in container["env"]}
    found += same("COMEM_SERVICE", variables["COMEM_SERVICE"]["value"], subdomain)
    found += same("COMEM_NODES", int(variables["COMEM_NODES"]["value"]), job["completions"], job["parallelism"])
    secret = variables["COMEM_KEY"]["valueFrom"]["secretKeyRef"]
    made = f"kubectl create secret generic {secret['name']} --from-literal={secret['key']}="
    page = (ROOT / "docs/launchers.md").read_text()
    texts = {"the page": page, file.name: file.read_text()}
    found += [f"{place} does not make the secret" for place, text in texts.items() if made not in text]
    found += [f"the page does not apply {file.name}"] if f"kubernetes/{file.name}" not in page else []
    known = (ROOT / "crates/runtime/src/settings.rs").read_text() + (ROOT / "crates/runtime/src/control.rs").read_text()
    return found + [f"{name} is no variable of Comem's" for name in variables if f'"{name}"' not in known]


def wrong_port():
    """The port at which the pods meet, in the code and on the page."""
    code = (ROOT / "crates/runtime/src/guest/launchers.rs").read_text()
    port = re.search(r"const PORT: u16 = ([0-9_]+);", code).group(1).replace("_", "")
    page = (ROOT / "docs/launchers.md").read_text()
    return [] if f"port {port}." in page else [f"the page does not name port {port}"]


def main():
    broken = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "A"}, "spec": {"clusterIp": "None"}}
    number = wrong({"name": "COMEM_NODES", "value": 4}, VARIABLE, "env")
    verdict("what is wrong is found", same("things", len(wrong_object(broken)), 2) + same("a number", len(number), 1))
    for file in sorted((ROOT / "deploy/kubernetes").glob("*.yaml")):
        objects = list(yaml.safe_load_all(file.read_text()))
        found = [line for one in objects for line in wrong_object(one)]
        verdict(f"{file.name}: every field is one that Kubernetes takes", found)
        if not found:
            verdict(f"{file.name}: names agree", wrong_names(file, objects))
    verdict("the port of the page is that of the code", wrong_port())
    sys.exit(failures != 0)


main()
