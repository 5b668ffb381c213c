// A webhook that always answers the same, beside which edgeward is measured; `cargo xtask constant-webhook` builds main.go into the
// cache.
module edgeward.io/constant

go 1.26.0
