# Each CI step and each bar is a target. `make` prints this list.
SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
BIN         := $(CURDIR)/build/bin
MODEL_DIR   := $(CURDIR)/build/model
MODEL       := $(MODEL_DIR)/SmolLM2-135M-Instruct.Q4_1.gguf
PEER        := $(CURDIR)/build/peer
BINARIES    := leasehold leasehold-kvbroker leasehold-mover leasehold-prefill leasehold-decode leasehold-router
# leasehold-mover is built with UCX where its headers are; elsewhere it says at its start that it was built without.
UCX          = $(shell test -f /usr/include/ucp/api/ucp.h && echo ucx)
export LEASEHOLD_MODEL := $(MODEL)
export LEASEHOLD_BIN   := $(BIN)
export LEASEHOLD_PYCLIENT := $(CURDIR)/build/pyclient
export PATH := $(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help deps libucx model build consul pyclient demo up test lint sanitize proto proto-check bars bars-quick fuzz clean \
  golden canary split-equal refusals failures steady bench-engine bench-guards bench-ttft kernels explore replay build-faults faults guard-matrix incident soak

help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

deps: ## install what is missing (Debian), or name it
	@scripts/deps.sh

libucx: deps ## install UCX's headers (Debian), or name them
	@scripts/deps.sh libucx

model: deps ## fetch SmolLM2-135M-Instruct, pinned by hash
	@scripts/model.sh $(MODEL_DIR)

build: deps ## build the six binaries into build/bin
	@mkdir -p $(BIN)
	@echo "build: $(BINARIES)"
	@scripts/progress.sh build go build -tags '$(UCX)' -o $(BIN)/ ./cli/cmd/leasehold ./kvbroker/cmd/leasehold-kvbroker ./kvbroker/cmd/leasehold-mover ./prefill/cmd/leasehold-prefill \
	  ./decode/cmd/leasehold-decode ./router/cmd/leasehold-router

build-faults: deps ## build them with the fault kit (tag faults) into build/faults/bin
	@mkdir -p build/faults/bin
	@scripts/progress.sh build-faults go build -tags 'faults $(UCX)' -o build/faults/bin/ ./cli/cmd/leasehold ./kvbroker/cmd/leasehold-kvbroker ./kvbroker/cmd/leasehold-mover \
	  ./prefill/cmd/leasehold-prefill ./decode/cmd/leasehold-decode ./router/cmd/leasehold-router

consul: deps ## build a real Consul server (once, cached) into build/bin
	@scripts/progress.sh consul consul/build.sh $(BIN)/consul

pyclient: deps ## install OpenAI's Python client into build/pyclient
	@scripts/pyclient.sh $(LEASEHOLD_PYCLIENT)

demo: model build ## ask one question through the split path, show what happened, stop everything
	@$(BIN)/leasehold up --model $(MODEL) --demo

up: model build ## start the mesh and leave it running: prints URLs, a key and a curl line
	@$(BIN)/leasehold up --model $(MODEL)

test: libucx model consul build build-faults pyclient ## every test of the workspace, with a real Consul; closes with their number
	@scripts/deps.sh promtool $(if $(filter 1,$(LEASEHOLD_NO_NETNS)),,netns)
	@scripts/test.sh

lint: deps ## gofmt, vet, golangci-lint, buf lint, generated code up to date
	@test -z "$$(gofmt -l $$(git ls-files '*.go' | grep -v /gen/))" || { gofmt -l $$(git ls-files '*.go' | grep -v /gen/); exit 1; }
	@go vet work
	@[ -z '$(UCX)' ] || go vet -tags ucx ./kvbroker/... ./integration/haul
	@scripts/tool.sh golangci-lint tools/lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@for m in $$(go list -f '{{.Dir}}' -m); do (cd $$m && golangci-lint run --config $(CURDIR)/.golangci.yml ./...); done
	@$(MAKE) --no-print-directory proto-check

sanitize: libucx ## the ucx mover's C under the address, undefined behaviour and thread sanitizers, its Go under the race detector
	@scripts/sanitize.sh

proto: deps ## generate protos/gen from protos/proto
	@for t in github.com/bufbuild/buf/cmd/buf google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc \
	  github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-grpc-gateway; do scripts/tool.sh $$(basename $$t) tools $$t; done
	@cd protos && buf lint && buf generate

proto-check: proto ## fail when the committed generated code is not what the protos give
	@git diff --exit-code --stat -- protos/gen

bars: model consul build ## all bars, then a table
	@go run ./integration/cmd/bars -all

bars-quick: model build ## the bars that end within a minute
	@go run ./integration/cmd/bars -quick

golden: model ## token ids and logits against llama.cpp's and an independent float32 pass
	@go run ./integration/cmd/bars -run golden

canary: build ## front, middle and end of up to 50,000 tokens come back through the split mesh, and the gate opens
	@go run ./integration/cmd/bars -run canary

split-equal: libucx model build ## split and unsplit give the same bits
	@go run ./integration/cmd/bars -run split-equal

refusals: model build ## over the limit, wrong key, unknown model, full pool, bad body: OpenAI's errors, pools untouched
	@go run ./integration/cmd/bars -run refusals

replay: model build ## 200 answers of a mixed load run again elsewhere: equal tokens and logits
	@go run ./integration/cmd/bars -run replay

failures: model consul build ## kill each process in mid-stream and before the Completion
	@go run ./integration/cmd/bars -run failures

faults: libucx model consul build build-faults ## every row of the catalogue of faults, on every mover
	@go run ./integration/cmd/bars -run faults

guard-matrix: build-faults ## each guard alone, without it, and none: whose markers come out, and who speaks
	@go run ./integration/cmd/bars -run guard-matrix

SCALE ?= 64
incident: build-faults ## the incident, replayed at 1/SCALE (64; SCALE=1: its own size): guards on, and off
	@LEASEHOLD_SCALE=$(SCALE) go run ./integration/cmd/bars -run incident

soak: model build ## both models under 16 tenants, cancels and kills for MINUTES (10): every answer is judged
	@LEASEHOLD_MINUTES=$(MINUTES) go run ./integration/cmd/bars -run soak

bench-ttft: model build ## the last chunk's way to decode's first step, and the time to the first token beside one process
	@go run ./integration/cmd/bars -run bench-ttft

steady: model build ## 2,000 requests: nothing grows
	@go run ./integration/cmd/bars -run steady

bench-engine: model ## decode and prefill beside llama.cpp, same run
	@scripts/peer.sh $(PEER)
	@go run ./integration/cmd/bars -run bench-engine

bench-guards: model ## tags and digests on against off, ABBA
	@go run ./integration/cmd/bars -run bench-guards

explore: deps ## every history of a small mesh, over the cores that ship; five seeded bugs
	@go run ./integration/cmd/bars -run explore

.PHONY: bench-transfer
bench-transfer: libucx ## one list of pages by every mover, beside memcpy, TCP, TLS and the peers' (ONLY=tcp,tls PAGE_BYTES=32768: a part)
	@scripts/peers-transfer.sh $(PEER)
	@LEASEHOLD_ONLY=$(ONLY) LEASEHOLD_PAGE_BYTES=$(PAGE_BYTES) go run -tags ucx ./integration/cmd/bars -run bench-transfer

.PHONY: bench-lease
bench-lease: model ## what a page costs to reserve, release and clear, in a pool of 10^6
	@go run ./integration/cmd/bars -run bench-lease

kernels: deps ## every kernel bit for bit against scalar code, AVX-512 emulated where the CPU lacks it
	@scripts/deps.sh simde
	@go test -count=1 -tags simde ./gpu/engine/kernelcheck

fuzz: model ## each fuzz target of the boundary for MINUTES (1); FUZZ=. is every target
	@scripts/fuzz.sh $(or $(MINUTES),1) '$(FUZZ)'

clean: ## remove what was built (the model and the peer stay)
	@rm -rf build/bin build/faults build/run build/cache
