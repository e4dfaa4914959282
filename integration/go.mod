module leasehold.dev/integration

go 1.26.0
