#!/usr/bin/env node
// For HEALTHCHECK and probes: asks /healthz of the server in the same container, or looks at the heartbeat of a worker. It is
// content where neither was started: then the end of the process is what counts. An argument names another process than the first.
import { readFileSync, statSync } from 'node:fs'

// Three beats of a worker, and a margin for a machine that is busy.
const OLDEST_HEARTBEAT_MS = 30_000

const command = readFileSync(`/proc/${process.argv[2] ?? 1}/cmdline`, 'utf8').split('\0')
const option = (name) => {
  const at = command.findIndex((word) => word === `--${name}` || word.startsWith(`--${name}=`))
  return at < 0 ? undefined : (command[at].split('=')[1] ?? command[at + 1])
}
const heartbeat = option('heartbeat-file')
if (command.includes('worker') && heartbeat !== undefined) {
  const touchedAt = statSync(heartbeat, { throwIfNoEntry: false })?.mtimeMs ?? 0
  if (Date.now() - touchedAt > OLDEST_HEARTBEAT_MS) process.exitCode = 1
} else if (command.includes('serve')) {
  const { loadConfig } = await import('../dist/core/config/load.js')
  const { serve } = loadConfig({ file: option('config') })
  const host = option('host') ?? serve.host
  const address = ['0.0.0.0', '::', 'localhost'].includes(host) ? '127.0.0.1' : host
  const response = await fetch(`http://${address}:${option('port') ?? serve.port}/healthz`).catch(() => undefined)
  if (response?.status !== 200) process.exitCode = 1
}
