module leasehold.dev/cli

go 1.26.0
