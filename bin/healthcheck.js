#!/usr/bin/env node
// For HEALTHCHECK: asks /healthz of the server in the same container, and is content where none was started.
import { readFileSync } from 'node:fs'
import { loadConfig } from '../dist/core/config/load.js'

const command = readFileSync('/proc/1/cmdline', 'utf8').split('\0')
const option = (name) => {
  const at = command.findIndex((word) => word === `--${name}` || word.startsWith(`--${name}=`))
  return at < 0 ? undefined : (command[at].split('=')[1] ?? command[at + 1])
}
if (command.includes('serve')) {
  const { serve } = loadConfig({ file: option('config') })
  const host = option('host') ?? serve.host
  const address = ['0.0.0.0', '::', 'localhost'].includes(host) ? '127.0.0.1' : host
  const response = await fetch(`http://${address}:${option('port') ?? serve.port}/healthz`).catch(() => undefined)
  if (response?.status !== 200) process.exitCode = 1
}
