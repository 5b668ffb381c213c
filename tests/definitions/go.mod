// The definitions of other projects' resources for the end-to-end tests; `cargo xtask definitions` copies them into the cache.
module edgeward.io/definitions

go 1.26.0

require (
	open-cluster-management.io/api v1.0.0
	sigs.k8s.io/scheduler-plugins v0.32.7
)
