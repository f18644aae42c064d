#!/usr/bin/env node
// For HEALTHCHECK: asks /healthz of the server in the same container, and is content where none was started. The command line
// of the container's process is read from /proc, or from the file that is named.
import { readFileSync } from 'node:fs'
import { loadConfig } from '../dist/core/config/load.js'

const LIMIT_MS = 4000
const command = readFileSync(process.argv[2] ?? '/proc/1/cmdline', 'utf8').split('\0')
const option = (name) => {
  const at = command.findIndex((word) => word === `--${name}` || word.startsWith(`--${name}=`))
  return at < 0 ? undefined : (command[at].split('=')[1] ?? command[at + 1])
}
if (command.includes('serve')) {
  const { serve } = loadConfig({ file: option('config') })
  const host = option('host') ?? serve.host
  const local = ['0.0.0.0', '::', 'localhost'].includes(host) ? '127.0.0.1' : host
  const address = local.includes(':') ? `[${local}]` : local
  const url = `http://${address}:${option('port') ?? serve.port}/healthz`
  const response = await fetch(url, { signal: AbortSignal.timeout(LIMIT_MS) }).catch(() => undefined)
  if (response?.status !== 200) process.exitCode = 1
}
