module leasehold.dev/model

go 1.26.0
