#!/usr/bin/env bash
# Load generators on the same null server, with the release binary. wrk and h2load come from the system; a perf_analyzer
# binary can be named with --perf-analyzer.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --release -p parm
PYTHONPATH=lab/interop:lab/bench python3 lab/bench/load.py "$@"
