# The same commands without just: `cargo xtask --help`.

# List the recipes.
default:
    @just --list

# Three pods in three situations; needs nothing but cargo.
demo:
    cargo run --release -- demo

# Everything, the end-to-end tests on a real control plane included.
test *args:
    cargo xtask test {{args}}

# The fuzz targets, and the long tests on a control plane, which `test` leaves out: `just soak load`.
soak *args:
    cargo xtask soak {{args}}

# The fuzz targets alone, a minute each: `just fuzz review`.
fuzz *args:
    cargo xtask fuzz {{args}}

# Formatting, lints, documentation, dependencies; runs no test.
check:
    cargo xtask check

# The end-to-end tests alone: `just e2e placement`.
e2e *args:
    cargo test --locked --test e2e -- {{args}}

# The tests over an emulated WAN alone: `just wan link`.
wan *args:
    cargo test --locked --test wan -- {{args}}

# Build the control plane of the end-to-end tests into the cache.
control-plane:
    cargo xtask control-plane

# Build the cert-manager of the end-to-end tests into the cache.
cert-manager:
    cargo xtask cert-manager

# Build the Liqo of the end-to-end tests into the cache.
liqo:
    cargo xtask liqo

# Copy the other projects' definitions of the end-to-end tests into the cache.
definitions:
    cargo xtask definitions

# The tests beside a real Prometheus server alone.
prometheus *args:
    cargo test --locked --test prometheus -- {{args}}

# The lab's page in a real browser alone.
browser:
    cargo test --locked -p edgeward-lab --test browser

# The chart as Helm renders it.
helm-tests *args:
    cargo test --locked --test helm -- {{args}}

# What a review costs, part by part.
bench *args:
    cargo bench {{args}}

# What edgeward costs in a cluster, beside others: `just bench-cluster create`.
bench-cluster *args:
    cargo xtask bench {{args}}

# Build the version that upgrades are tested from into the cache.
earlier:
    cargo xtask earlier

# Build Helm for the tests of the chart into the cache.
helm:
    cargo xtask helm

# Write the goldens of the end-to-end tests again.
bless:
    EDGEWARD_BLESS=1 cargo test --locked --test e2e placement

# Build the static program that the image contains, and start it where there is nothing else.
static:
    cargo xtask static

# Write what the program is made of, as CycloneDX, to target/sbom.
sbom:
    cargo xtask sbom

# What continuous integration runs.
ci:
    .ci/run
