"""What every manifest of ours has to keep, whatever the schemas allow: rights, references, probes, spread."""

import re


def by_kind(objects, *kinds):
    """Objects of these kinds."""
    return [found for found in objects if found["kind"] in kinds]


def selects(selector, labels):
    """Whether a plain selector selects."""
    return bool(selector) and all(labels.get(key) == value for key, value in selector.items())


def pods(objects):
    """Name, template and specification of every workload."""
    for found in by_kind(objects, "Deployment"):
        template = found["spec"]["template"]
        yield found["metadata"]["name"], template["metadata"]["labels"], template["spec"]


# All that a token of ours is for.
NEEDED = {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list"]}


def grants(objects, account):
    """What a service account may do."""
    if ("ServiceAccount", account) not in {(found["kind"], found["metadata"]["name"]) for found in objects}:
        return []
    roles = {found["metadata"]["name"]: found["rules"] for found in by_kind(objects, "Role")}
    bound = [
        binding["roleRef"]["name"]
        for binding in by_kind(objects, "RoleBinding")
        if any((subject["kind"], subject["name"]) == ("ServiceAccount", account) for subject in binding["subjects"])
    ]
    wide = ["everything" for _ in by_kind(objects, "ClusterRole", "ClusterRoleBinding")]
    return wide + [rule for name in bound for rule in roles.get(name, [])]


def rights(objects, name, spec):
    """A pod is nobody special, and writes nowhere."""
    context = spec.get("securityContext", {})
    if not (context.get("runAsNonRoot") and context.get("runAsUser", 0) > 0):
        yield f"{name}: may be root"
    if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield f"{name}: no seccomp profile"
    if spec.get("enableServiceLinks") is not False:
        yield f"{name}: gets variables of Services"
    token = spec.get("automountServiceAccountToken") is not False
    if token and grants(objects, spec.get("serviceAccountName")) != [NEEDED]:
        yield f"{name}: gets a token that may do more or less than read EndpointSlices"
    if not token and spec.get("serviceAccountName"):
        yield f"{name}: has a service account and no token of it"
    for container in spec["containers"]:
        context = container.get("securityContext", {})
        good = (
            context.get("readOnlyRootFilesystem") is True
            and context.get("allowPrivilegeEscalation") is False
            and context.get("capabilities") == {"drop": ["ALL"]}
        )
        if not good:
            yield f"{name}: the container may write or gain rights"
        limits = container["resources"].get("limits", {})
        if "memory" not in limits or "cpu" in limits or "cpu" not in container["resources"]["requests"]:
            yield f"{name}: wants a request of CPU, a limit of memory, and no limit of CPU"
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            # A pod that ends by itself needs none.
            if probe not in container and spec.get("restartPolicy") != "Never":
                yield f"{name}: no {probe}"
        if container["image"].split(":")[-1] in ("latest", container["image"]):
            yield f"{name}: image {container['image']} has no version"


def references(objects):
    """What is named exists: pods of Services, budgets and policies, targets of autoscalers, configuration, claims, ports."""
    templates = list(pods(objects))
    names = {(found["kind"], found["metadata"]["name"]) for found in objects}
    runtimes = bool(by_kind(objects, "InferenceService"))
    for name, _, spec in templates:
        volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
        for volume in volumes.values():
            config = volume.get("configMap", {}).get("name")
            if config and ("ConfigMap", config) not in names:
                yield f"{name}: ConfigMap {config} is not there"
            secret = volume.get("secret")
            if secret and (secret.get("defaultMode", 0o644) & 0o007 or not spec["securityContext"].get("fsGroup")):
                yield f"{name}: Secret {secret['secretName']} can be read by everyone, or not by the process"
        for container in spec["containers"]:
            for mount in container.get("volumeMounts", []):
                if mount["name"] not in volumes or not mount.get("readOnly"):
                    yield f"{name}: mount {mount['name']} is not there, or can be written"
    for service in by_kind(objects, "Service"):
        labels = service["spec"]["selector"]
        matched = [spec for _, own, spec in templates if selects(labels, own)]
        foreign = "app.kubernetes.io/name" not in labels
        if not matched and not foreign:
            yield f"Service {service['metadata']['name']} selects nothing"
        ports = {port["name"] for spec in matched for container in spec["containers"] for port in container["ports"]}
        for port in service["spec"]["ports"]:
            if matched and port.get("targetPort", port["name"]) not in ports:
                yield f"Service {service['metadata']['name']}: no port {port['name']}"
    for budget in by_kind(objects, "PodDisruptionBudget"):
        if not any(selects(budget["spec"]["selector"]["matchLabels"], own) for _, own, _ in templates):
            yield f"budget {budget['metadata']['name']} selects nothing"
    for policy in by_kind(objects, "NetworkPolicy"):
        if not any(selects(policy["spec"]["podSelector"]["matchLabels"], own) for _, own, _ in templates):
            yield f"policy {policy['metadata']['name']} selects nothing"
    for scaler in by_kind(objects, "HorizontalPodAutoscaler"):
        target = scaler["spec"]["scaleTargetRef"]
        if (target["kind"], target["name"]) not in names:
            yield f"autoscaler {scaler['metadata']['name']}: its target is not there"
        for found in by_kind(objects, "Deployment"):
            if found["metadata"]["name"] == target["name"] and "replicas" in found["spec"]:
                yield f"{target['name']}: replicas would be set back at every apply"
    for route in by_kind(objects, "HTTPRoute", "GRPCRoute"):
        for rule in route["spec"]["rules"]:
            for backend in rule["backendRefs"]:
                services = [s for s in by_kind(objects, "Service") if s["metadata"]["name"] == backend["name"]]
                if not any(port["port"] == backend["port"] for s in services for port in s["spec"]["ports"]):
                    yield f"{route['kind']}: {backend} is not there"
    for monitor in by_kind(objects, "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"]
        ports = [
            port["name"]
            for service in by_kind(objects, "Service")
            if selects(wanted, service["metadata"]["labels"])
            for port in service["spec"]["ports"]
        ]
        # Once: a second Service with that port would count everything twice.
        if any(ports.count(endpoint["port"]) != 1 for endpoint in monitor["spec"]["endpoints"]):
            yield f"ServiceMonitor {monitor['metadata']['name']}: not exactly one Service has its port"
    for service in by_kind(objects, "InferenceService"):
        runtime = service["spec"]["predictor"]["model"]["runtime"]
        if runtimes and ("ClusterServingRuntime", runtime) not in names:
            yield f"runtime {runtime} is not there"


def spoken(objects):
    """Where only TLS is spoken nobody asks in plain: neither the kubelet nor Prometheus."""
    only_tls = False
    for name, _, spec in pods(objects):
        for container in spec["containers"]:
            env = {each["name"]: each.get("value") for each in container.get("env", [])}
            if env.get("PARM_TLS__MODE") != "require" and "tls.mode=require" not in container.get("args", []):
                continue
            only_tls = True
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                if "httpGet" in container[probe] and container[probe]["httpGet"].get("scheme") != "HTTPS":
                    yield f"{name}: {probe} asks in plain where only TLS is spoken"
    for monitor in by_kind(objects, "ServiceMonitor") if only_tls else []:
        if any(endpoint.get("scheme") != "https" for endpoint in monitor["spec"]["endpoints"]):
            yield f"ServiceMonitor {monitor['metadata']['name']} asks in plain where only TLS is spoken"


def keyed(objects):
    """Prometheus has a key where one is needed."""
    flags = [flag for _, _, spec in pods(objects) for each in spec["containers"] for flag in each.get("args", [])]
    if any(flag.startswith("server.keys_file=") for flag in flags):
        for monitor in by_kind(objects, "ServiceMonitor"):
            if not all("authorization" in endpoint for endpoint in monitor["spec"]["endpoints"]):
                yield f"ServiceMonitor {monitor['metadata']['name']} has no key, and /metrics needs one"


def written(objects):
    """A whole number in a flag is written as one: parm rejects 1.34217728e+08."""
    for name, _, spec in pods(objects):
        for container in spec["containers"]:
            for argument in container.get("args", []):
                if re.search(r"=-?[0-9.]+e[+-]?[0-9]+$", argument):
                    yield f"{name}: {argument} is not written as a whole number"


def problems(objects):
    """All of it."""
    yield from spoken(objects)
    yield from keyed(objects)
    yield from written(objects)
    for name, _, spec in pods(objects):
        yield from rights(objects, name, spec)
    for found in by_kind(objects, "Job"):
        yield from rights(objects, found["metadata"]["name"], found["spec"]["template"]["spec"])
    yield from references(objects)


def as_in_the_base(base, chart):
    """The chart makes of itself what the base is: the same pods, scaling, budgets and Services."""
    for kind in ("Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget", "NetworkPolicy"):
        ours, theirs = (
            {found["metadata"]["name"]: plain(found["spec"]) for found in by_kind(objects, kind)} for objects in (base, chart)
        )
        for name in sorted(ours.keys() | theirs.keys()):
            if ours.get(name) != theirs.get(name):
                yield f"{kind} {name} is not the same in base and chart: {difference(ours.get(name), theirs.get(name))}"


def plain(value):
    """Without what kustomize and Helm each name in their own way."""
    if isinstance(value, dict):
        names = ("app.kubernetes.io/instance", "app.kubernetes.io/part-of", "annotations", "imagePullPolicy", "args")
        kept = {key: plain(each) for key, each in value.items() if key not in names}
        if "configMap" in kept:
            kept["configMap"] = "-".join(kept["configMap"]["name"].split("-")[:2])
        return kept
    return [plain(each) for each in value] if isinstance(value, list) else value


def difference(one, other, at=""):
    """Where two values differ first."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            if one.get(key) != other.get(key):
                return difference(one.get(key), other.get(key), f"{at}.{key}")
    return f"{at}: {one!r} and {other!r}"
