#!/usr/bin/env node
// For HEALTHCHECK and probes: asks /healthz of the server in the same container, or reads the age of a worker's heartbeat.
// Other commands always pass, because they end by themselves. The argument is the id of the process (default 1), or a file
// with its command line.
const { readFileSync, statSync } = require('node:fs')

// Three beats of a worker, and a margin for a machine that is busy.
const OLDEST_HEARTBEAT_MS = 30_000
const LIMIT_MS = 4000

const processOrFile = process.argv[2] ?? '1'
const command = readFileSync(
  /^\d+$/.test(processOrFile) ? `/proc/${processOrFile}/cmdline` : processOrFile,
  'utf8',
).split('\0')
const option = (name) => {
  const at = command.findIndex((word) => word === `--${name}` || word.startsWith(`--${name}=`))
  return at < 0 ? undefined : (command[at].split('=')[1] ?? command[at + 1])
}
const heartbeat = option('heartbeat-file')
if (command.includes('worker') && heartbeat !== undefined) {
  const touchedAt = statSync(heartbeat, { throwIfNoEntry: false })?.mtimeMs ?? 0
  if (Date.now() - touchedAt > OLDEST_HEARTBEAT_MS) process.exitCode = 1
} else if (command.includes('serve')) {
  answers().then((isHealthy) => {
    if (!isHealthy) process.exitCode = 1
  })
}

async function answers() {
  const { loadConfig } = await import('../dist/core/config/load.js')
  const { serve } = loadConfig({ file: option('config') })
  const host = option('host') ?? serve.host
  const local = ['0.0.0.0', '::', 'localhost'].includes(host) ? '127.0.0.1' : host
  const address = local.includes(':') ? `[${local}]` : local
  const url = `http://${address}:${option('port') ?? serve.port}/healthz`
  const response = await fetch(url, { signal: AbortSignal.timeout(LIMIT_MS) }).catch(() => undefined)
  return response?.status === 200
}
