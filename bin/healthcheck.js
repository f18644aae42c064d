#!/usr/bin/env node
// For HEALTHCHECK: asks /healthz of the server in the same container, and is content where none was started.
import { readFileSync } from 'node:fs'

const command = readFileSync('/proc/1/cmdline', 'utf8').split('\0')
const at = command.indexOf('--port')
const port = at < 0 ? '8080' : command[at + 1]
if (command.includes('serve')) {
  const response = await fetch(`http://127.0.0.1:${port}/healthz`).catch(() => undefined)
  if (response?.status !== 200) process.exitCode = 1
}
