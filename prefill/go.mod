module leasehold.dev/prefill

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	go.uber.org/goleak v1.3.0
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.13-0.20261016172727-e9ee2a76ab8e
	leasehold.dev/gpu v0.0.0
	leasehold.dev/kvbroker v0.0.0
	leasehold.dev/mesh v0.0.0
	leasehold.dev/model v0.0.0
	leasehold.dev/protos v0.0.0
	pgregory.net/rapid v1.3.0
)

replace (
	leasehold.dev/gpu => ../gpu
	leasehold.dev/kvbroker => ../kvbroker
	leasehold.dev/mesh => ../mesh
	leasehold.dev/model => ../model
	leasehold.dev/protos => ../protos
)
