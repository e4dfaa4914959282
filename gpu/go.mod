module leasehold.dev/gpu

go 1.26.0
