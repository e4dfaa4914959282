module leasehold.dev/kvbroker

go 1.26.0
