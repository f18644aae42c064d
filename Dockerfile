# NODE may name another image, such as one that is on the machine already.
ARG NODE=base
# The digest is what is built on; Dependabot keeps it current, which it could not do in an ARG.
FROM node:24-slim@sha256:a9f5f7c91a432850b2a8a7797adf5eadb6c733ceed61167806cee7ea7fbc29df AS base

# The compiler's stage: everything is installed, and src/ becomes dist/.
FROM ${NODE} AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# The compiler is itself an optional package, so nothing is left out here.
RUN npm ci --ignore-scripts
COPY tsconfig.json tsconfig.build.json ./
COPY scripts/build.mjs scripts/
COPY src src
RUN npm run build

# What ships: production packages only, and no embedded Postgres, which are the optional ones.
FROM ${NODE} AS packages
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# Maps, typings and sources of packages are for developers; charts need one file of theirs.
RUN npm ci --ignore-scripts --omit=dev --omit=optional \
  && find node_modules \( -name '*.map' -o -name '*.d.ts' -o -name '*.d.mts' -o -name '*.d.cts' -o -name '*.md' \) -type f -delete

FROM ${NODE}
ARG VERSION=2.0.0
LABEL org.opencontainers.image.title="visibility-sync" \
  org.opencontainers.image.description="Keeps a Postgres warehouse in step with an AI answer visibility reporting service" \
  org.opencontainers.image.licenses="MIT" \
  org.opencontainers.image.version="${VERSION}"
# Programs read the log of a container.
ENV NODE_ENV=production LOG_FORMAT=json
WORKDIR /app
COPY --from=packages /app/node_modules node_modules
COPY --from=build /app/dist dist
COPY package.json LICENSE ./
COPY bin bin
# Scripts of orchestrators call it by its name.
RUN ln -s /app/bin/visibility-sync.js /usr/local/bin/visibility-sync
COPY sql sql
COPY config/sync.example.yaml config/sync.schema.json config/
COPY templates templates
COPY docs docs
# A number, so that Kubernetes can tell that it is not root.
USER 1000:1000
EXPOSE 8080
# Only `serve` answers; for `sync` and the others, the end of the process is what counts.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["node", "/app/bin/healthcheck.js"]
# The program handles signals and starts no other processes in here, so it may be process 1.
STOPSIGNAL SIGTERM
ENTRYPOINT ["node", "/app/bin/visibility-sync.js"]
CMD ["sync"]
