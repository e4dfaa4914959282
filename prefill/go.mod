module leasehold.dev/prefill

go 1.26.0
