// The definition of AddOnPlacementScore for the end-to-end tests; `cargo xtask ocm` copies it into the cache.
module edgeward.io/ocm

go 1.26.0

require open-cluster-management.io/api v1.0.0
