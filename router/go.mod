module leasehold.dev/router

go 1.26.0
