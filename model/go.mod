module leasehold.dev/model

go 1.26.0

require (
	github.com/ardanlabs/jinja v1.8.0
	github.com/google/go-cmp v0.7.0
	pgregory.net/rapid v1.3.0
)
