# One static program in an otherwise empty image. For both architectures:
#   docker buildx build --platform linux/amd64,linux/arm64 --tag IMAGE:TAG --push .
# Each is compiled on its own architecture, emulated where need be: slow, and the same program that a machine of it builds.
# `cargo xtask image` makes the same image without a container engine.

# The configuration of the image.
FROM scratch AS empty
# Of the allocator: no huge pages, of which each thread would take some, and what was freed goes back to the system at once.
ENV MIMALLOC_ALLOW_THP=0 MIMALLOC_PURGE_DELAY=0
# By number, or `runAsNonRoot` could not tell.
USER 65532:65532
EXPOSE 8443 8080
ENTRYPOINT ["/usr/local/bin/edgeward"]

# From programs that were built before, which `cargo xtask image` leaves in the context:
#   docker build --target prebuilt --file Dockerfile target/publish/programs
FROM empty AS prebuilt
ARG TARGETPLATFORM
COPY ca-certificates.crt /etc/ssl/certs/
COPY ${TARGETPLATFORM}/edgeward /usr/local/bin/

# The base image is named by digest, the index of both architectures. For another toolchain:
#   docker buildx imagetools inspect rust:VERSION-alpine3.23
FROM rust:1.95.0-alpine3.23@sha256:606fd313a0f49743ee2a7bd49a0914bab7deedb12791f3a846a34a4711db7ed2 AS build
ARG TARGETPLATFORM
# Not the components that rust-toolchain.toml asks for.
ENV RUSTUP_TOOLCHAIN=1.95.0
RUN apk add --no-cache build-base ca-certificates linux-headers
WORKDIR /edgeward
COPY . .
# Alpine's Rust links musl, and statically.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/edgeward/target,id=edgeward-${TARGETPLATFORM} \
    cargo build --profile dist --locked --bin edgeward && cp target/dist/edgeward /usr/local/bin/

FROM empty
# For probes by HTTPS and for Prometheus.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /usr/local/bin/edgeward /usr/local/bin/
