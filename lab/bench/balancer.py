"""Envoy as the load balancer in front of the same workers, configured as well as we can.

It uses least requests of four random hosts (of all would be worse: a dead host has the fewest). Active health checks are as
frequent as parm's. Outlier detection follows two failures, checks four times a second and lasts Envoy's usual 30 s. Failed
requests are retried on another host within a budget. With hedging, a second request goes to another host when the first
takes `try_ms` (`hedge_on_per_try_timeout`), which outlier detection counts as a failure. Envoy does not learn that delay:
it is configured.
"""

import json

from fleet import Process
from network import port
from processes import wait_for_http


def configuration(port, workers, deadline_ms, try_ms, ejected):
    socket = lambda address, port: {"socket_address": {"address": address, "port_value": int(port)}}  # noqa: E731
    any_host_but_the_last = {"name": "envoy.retry_host_predicates.previous_hosts", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"}}
    retries = {"retry_on": "5xx,reset,connect-failure,gateway-error", "num_retries": 2,
               "retry_host_predicate": [any_host_but_the_last], "host_selection_retry_max_attempts": 10,
               "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.010s"}}
    route = {"cluster": "workers", "timeout": f"{deadline_ms / 1e3}s", "retry_policy": retries}
    if try_ms:
        retries["per_try_timeout"] = f"{try_ms / 1e3}s"
        route["hedge_policy"] = {"hedge_on_per_try_timeout": True}
    manager = {"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3."
                        "HttpConnectionManager",
               "stat_prefix": "chaos",
               "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {
                   "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
               "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                   {"match": {"prefix": "/"}, "route": route}]}]}}
    cluster = {
        "name": "workers", "type": "STATIC", "connect_timeout": "0.25s",
        "lb_policy": "LEAST_REQUEST", "least_request_lb_config": {"choice_count": 4},
        "load_assignment": {"cluster_name": "workers", "endpoints": [{"lb_endpoints": [
            {"endpoint": {"address": socket(*worker.http.rsplit(":", 1))}} for worker in workers]}]},
        "health_checks": [{"timeout": "1s", "interval": "1s", "unhealthy_threshold": 2, "healthy_threshold": 1,
                           "http_health_check": {"path": "/v2/health/ready"}}],
        "outlier_detection": {
            "consecutive_5xx": 3, "consecutive_gateway_failure": 2, "enforcing_consecutive_gateway_failure": 100,
            "split_external_local_origin_errors": True, "consecutive_local_origin_failure": 2,
            "successful_active_health_check_uneject_host": False,
            "interval": "0.25s", "base_ejection_time": "30s", "max_ejection_percent": ejected},
        "circuit_breakers": {"thresholds": [{"max_retries": 1000, "retry_budget": {
            "budget_percent": {"value": 20.0}, "min_retry_concurrency": 10}}]},
    }
    listener = {"address": socket("127.0.0.1", port), "filter_chains": [{"filters": [
        {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}]}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


class Envoy(Process):
    """An Envoy over workers, with hedging if a time per try is given. It ejects at most this percentage of the workers."""

    def __init__(self, binary, workers, deadline_ms, try_ms=None, ejected=50, **options):
        own = port()
        self.http = f"127.0.0.1:{own}"
        config = json.dumps(configuration(own, workers, deadline_ms, try_ms, ejected))
        super().__init__([binary, "--config-yaml", config, "--concurrency", "2", "--disable-hot-restart",
                          "-l", "error"], **options)

    def start(self):
        self.launch()
        wait_for_http(f"http://{self.http}/v2/health/ready", self.process)
