# One line a target; `make` lists them.
STATICCHECK = go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCI = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.13.2
GOVULNCHECK = go run golang.org/x/vuln/cmd/govulncheck@v1.8.0
COUNT ?= 1

# The server needs no C; and one setting for all means that nothing is compiled
# twice.
export CGO_ENABLED = 0

.PHONY: help run build demo screenshots check vulnerabilities test long long-list bench schema generate image release long-race long-random long-e2e long-clients long-diff long-cluster long-conformance long-crossplane long-robust long-patroni long-spin long-bench-peers long-packages long-suites suites long-mutants

help:
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | grep -v '^long-' | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

long: $(if $(RUN),long-$(RUN),long-list) ## the tests that take long, one at a time: RUN=NAME; without RUN their list

long-list:
	@grep -hE '^long-[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/^long-//' | awk -F':.*## ' '{printf "  make long RUN=%-12s %s\n", $$1, $$2}'

run: build ## start a server on ./data
	bin/exeunt serve

build: ## build bin/exeunt, a static binary, and its names as kubectl's plugin
	go build -ldflags '-s -w' -o bin/exeunt ./cmd/exeunt
	ln -sf exeunt bin/kubectl-exeunt
	ln -sf exeunt bin/kubectl_complete-exeunt

demo: build ## one deletion from beginning to end, told as it happens; its first build takes minutes
	@echo "Building the demo and kubectl: the first time this takes some minutes, later seconds."
	cd test && go build -ldflags '-s -w' -o bin/demo/ ./cmd/demo ./cmd/kubectl
	test/bin/demo/demo -exeunt bin/exeunt -kubectl test/bin/demo/kubectl -examples examples/shop $(if $(filter keep,$(DEMO)),-keep)

screenshots: build ## draw the console's pages during the demo into docs/images; needs Chromium
	cd test && go build -ldflags '-s -w' -o bin/demo/ ./cmd/screenshots ./cmd/kubectl
	script/chromium test/bin/demo/screenshots -exeunt bin/exeunt -kubectl test/bin/demo/kubectl -examples examples/shop -into docs/images

check: ## the quick gate: format, the linters of .golangci.yml (vet and staticcheck among them), our own rules; the first run builds the linters, which takes minutes
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "run gofmt -w on:"; echo "$$files"; exit 1; fi
	$(GOLANGCI) run ./...
	cd test && go vet ./...
	cd test && $(STATICCHECK) ./...
	go test -count=1 .

vulnerabilities: ## known vulnerabilities in what is linked; needs the Go vulnerability database
	$(GOVULNCHECK) ./...

test: ## all tests, on SQLite and on PostgreSQL, some packages also under the race detector; a failed test runs once more
	script/test

long-race: ## the server's own tests under the race detector
	script/postgres script/compiler go test -race -timeout 20m ./...

long-e2e: ## the end-to-end tests, each on both engines and in its full size; make test has most of them on one engine
	cd test && ../script/postgres ../script/chromium go test -p 1 -count=$(COUNT) -timeout 30m ./...

long-clients: ## docker, podman, skopeo, crane, helm and cosign against the registry; builds or installs them, which takes minutes
	cd test && ../script/postgres ../script/clients go test -tags clients -count=1 -v ./clients

long-diff: ## the same requests to this server and to a real kube-apiserver; builds it, the first time takes ten minutes and more
	bin=$$(script/kubernetes etcd kube-apiserver kube-controller-manager) && cd test && EXEUNT_PEERS_BIN=$$bin go test -tags diff -count=1 -timeout 20m -v ./diff

long-cluster: build ## 100 nodes and 500 pods on this server, with the real controller manager, scheduler and kwok; builds them, which takes minutes
	cd test && go build -ldflags '-s -w' -o bin/demo/ ./cmd/cluster ./cmd/kubectl
	bin=$$(script/kubernetes kube-controller-manager kube-scheduler kwok) && test/bin/demo/cluster -exeunt bin/exeunt -kubectl test/bin/demo/kubectl -peers $$bin $(if $(filter keep,$(CLUSTER)),-keep)

long-conformance: ## Kubernetes' own end-to-end specs on this server; builds them, the first time takes half an hour
	bin=$$(script/kubernetes kube-controller-manager kube-scheduler kwok e2e.test $(if $(findstring -real,$(CONFORMANCE)),etcd kube-apiserver)) && cd test && EXEUNT_PEERS_BIN=$$bin go test -tags conformance -count=1 -timeout 2h -v ./conformance $(CONFORMANCE)

long-crossplane: ## the real Crossplane on this server, with the broker; builds it, the first time takes ten minutes: CROSSPLANE=-record writes its history
	bin=$(or $(abspath $(PROGRAMS)),$$(script/kubernetes crossplane)) && cd test && EXEUNT_PEERS_BIN=$$bin ../script/postgres go test -tags crossplane -count=1 -timeout 20m -v -run TestCrossplane ./broker $(CROSSPLANE)

long-robust: ## three replicas, a database that fails over and an S3 server, with faults, for an hour: make long RUN=robust FOR=10m SEED=7 REPORT=FILE
	cd test && ../script/faketime ../script/postgres go test -count=1 -timeout 0 -v -run TestRobust ./robust -robust $(or $(FOR),1h) -robust-seed $(or $(SEED),0) $(if $(REPORT),-robust-report $(abspath $(REPORT)))

long-patroni: ## robust on a database that Patroni fails over, with etcd: make long RUN=patroni FOR=10m SEED=7; installs them on Debian and Ubuntu
	cd test && ../script/patroni ../script/postgres go test -tags patroni -count=1 -timeout 0 -v -run TestPatroni ./robust -robust $(or $(FOR),10m) -robust-seed $(or $(SEED),0)

long-random: ## what is random or repeated in `make test`, many times more: graphs, worlds, names, kills
	script/postgres go test -count=1 -timeout 1h ./gc -run 'TestModel|TestInterleaved|TestScanRestoresLostRows' -seeds $(or $(SEEDS),300)
	script/postgres go test -count=1 -timeout 1h ./deletion/preview -run 'TestPreviewIsWhatADeleteDoes|TestGuardCountsWhatGoes' -preview-graphs $(or $(SEEDS),300)0
	script/postgres go test -count=1 -timeout 1h ./deletion/archive -run 'TestCallBack$$|TestUndoRestoresTheWorld|TestRevertRestoresTheWorld' -undo-worlds $(or $(SEEDS),300) -revert-worlds $(or $(SEEDS),300)
	script/postgres go test -count=20 -timeout 1h ./deletion/archive -run TestUnreadableIsAbsent
	script/postgres go test -count=1 -timeout 1h ./deletion/expiry -run TestPreviewIsTheRun -expiry-worlds $(or $(SEEDS),1000)
	script/postgres go test -count=1 -timeout 1h ./registry/repository -run TestRetentionWorlds -retention-rounds $(or $(SEEDS),300)0
	script/postgres go test -count=1 -timeout 1h ./cmd/exeunt -run TestConfigCheckAsStartRandom -config-files $(or $(SEEDS),300)
	script/postgres go test -count=1 -timeout 1h ./api -run TestNamesCanBeDeleted -names $(or $(SEEDS),300)
	cd test && ../script/postgres go test -count=1 -timeout 1h ./crash -run TestKill -rounds 20 -kill 1m
	cd test && ../script/postgres go test -count=1 -timeout 1h ./broker -run 'TestKill$$' -kills 10

long-spin: ## 100,000 pushes and 10,000 deployments on each engine against collectors that wait for nothing; takes long
	script/postgres go test ./registry/collect -run TestGCSpin -v -timeout 3h -args -spin 100000
	script/postgres go test ./registry/repository -run TestUsedSpin -v -timeout 3h -args -used 10000

bench: ## benchmarks next to the code, for benchstat
	script/postgres go test -run '^$$' -bench . -benchmem -count=$(COUNT) ./...

long-bench-peers: build ## this server beside kube-apiserver, kube-controller-manager and distribution, in turns, as one table in bench/results; builds them, takes an hour
	script/bench-peers $(BENCH)

schema: ## rewrite sqldb/schema/sqlite.sql and postgres.sql from the migrations
	script/postgres go generate ./sqldb/schema

generate: ## rewrite the OpenAPI definitions of the built-in kinds, docs/metrics.md and docs/reference
	go generate ./api/openapi ./cmd/exeunt
	script/postgres go generate ./server

image: ## build the container image (linux/amd64 and arm64) into ./dist, without Docker; PUSH=HOST/REPOSITORY:TAG also pushes it
	cd packaging/release && go build -o ../../bin/release . && ../../bin/release -image $(if $(VERSION),-version $(VERSION)) $(if $(PUSH),-push $(PUSH)) $(RELEASE)

release: ## build a release into ./dist: programs, archives, .deb, .rpm, image, manual, licences, checksums; takes many minutes
	cd packaging/release && go vet ./... && go test ./... && go build -o ../../bin/release . && ../../bin/release $(if $(VERSION),-version $(VERSION)) $(RELEASE)

suites: long-suites

long-suites: build ## the suites of operators that use envtest, on this server and on kube-apiserver, as one table in bench/results: SUITES='-only NAME'; builds them, takes hours
	cd test && go build -o bin/suites ./cmd/suites
	test/bin/suites -exeunt bin/exeunt -peers "$$(script/kubernetes etcd kube-apiserver)" -out bench/results/$$(date -u +%Y-%m-%d)-suites.md $(SUITES)

long-mutants: ## deliberate bugs, and which of them the tests of their package do not see: MUTANTS='-seed 7 -n 60', or MUTANTS='-n 0 -pkg lifecycle' for all of a package
	cd test && go build -o bin/mutants ./cmd/mutants
	script/postgres test/bin/mutants $(MUTANTS)

long-packages: ## install, use, upgrade and remove the .deb on a copy of this machine, with and without systemd; needs root and Debian or Ubuntu
	cd packaging/release && go test -tags install -count=1 -timeout 20m -v -run TestInstall .
