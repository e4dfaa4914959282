module leasehold.dev/mesh

go 1.26.0
