module leasehold.dev/decode

go 1.26.0
