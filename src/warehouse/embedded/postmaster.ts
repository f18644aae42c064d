import { spawn } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import type { Writable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { InterruptedError, TransientError } from '../../core/errors.ts'
import { monotonic } from '../../core/monotonic.ts'
import { clip } from '../../core/text.ts'
import { diskFullError, isDiskFull, RUNNING_MB } from './disk-space.ts'
import { dataArgument, prefixOf, type ServerPaths } from './server-command.ts'
import type { ServerLog } from './server-log.ts'

/** A running server. */
export interface Postmaster {
  port: number
  ended: Promise<void>
  hasEnded(): boolean
  /** Ends all sessions and the server; one whose folder is gone must not write its last checkpoint. */
  stop(how?: 'fast' | 'immediate'): Promise<void>
}

// Recovery after a crash reads up to max_wal_size of log.
const START_MS = 300_000
const FAST_MS = 60_000
const IMMEDIATE_MS = 10_000
const OLD_MEMORY_MS = 15_000
const DRAIN_MS = 2000

/*
 * Starts the server and, beside it, a shell that reads a pipe of ours: if the pipe ends because this process was
 * killed, the shell stops the server. It is forked twice, so that Postgres does not find a child that it did not start.
 */
const GUARDED = '( { read -r _ <&3 || kill -INT $$; } </dev/null >/dev/null 2>&1 & ); exec 3<&-; exec "$@"'

export async function startPostmaster(
  paths: ServerPaths,
  log: ServerLog,
  settings: Record<string, string>,
  signal: AbortSignal,
): Promise<Postmaster> {
  const deadline = monotonic() + OLD_MEMORY_MS
  for (let avoid: number | undefined; ; ) {
    const port = await choosePort(join(paths.folder, 'postgres.port'), avoid)
    log.forgetTail()
    const server = launch(paths, port, log, settings)
    if (await isReady(server, paths.data, signal)) return server
    await server.stop()
    await Promise.race([server.drained, delay(DRAIN_MS, undefined, { ref: false })])
    const lastLines = log.tail()
    if (signal.aborted) throw new InterruptedError('asked to stop while the embedded Postgres was starting')
    if (isDiskFull(lastLines)) throw diskFullError(paths.folder, RUNNING_MB)
    if (/could not bind|could not create any TCP/.test(lastLines) && avoid === undefined) {
      // Someone took the port between our look and the start.
      avoid = port
    } else if (/shared memory block .* still in use/.test(lastLines) && monotonic() < deadline) {
      // Sessions of a server that was killed take a moment to notice it.
      await delay(250)
    } else {
      throw new TransientError(
        `the embedded Postgres does not start in ${paths.data} (see ${log.path}):\n${clip(lastLines, 1200)}`,
      )
    }
  }
}

function launch(paths: ServerPaths, port: number, log: ServerLog, settings: Record<string, string>): Server {
  const options = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const words = [paths.binaries.postgres, '-D', dataArgument(paths.data), '-p', String(port), ...options]
  const child = spawn('/bin/sh', ['-c', GUARDED, 'sh', ...prefixOf(paths), ...words], {
    cwd: paths.data,
    stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
    ...(paths.runAs.user ?? {}),
  })
  child.stdout?.on('data', (chunk: Buffer) => log.write(chunk))
  child.stderr?.on('data', (chunk: Buffer) => log.write(chunk))
  const guard = child.stdio[3] as Writable
  guard.on('error', () => {})
  let hasEnded = false
  const ended = new Promise<void>((done) => {
    const end = () => {
      hasEnded = true
      // A line instead of the end of the pipe: there is nothing left to stop.
      guard.end('ended\n')
      done()
    }
    child.on('exit', end)
    child.on('error', (error) => {
      log.write(Buffer.from(`${error.message}\n`))
      end()
    })
  })
  return {
    pid: child.pid,
    drained: new Promise<void>((done) => child.on('close', () => done())),
    port,
    ended,
    hasEnded: () => hasEnded,
    async stop(how = 'fast') {
      const steps: [NodeJS.Signals, number][] = [
        ['SIGINT', FAST_MS],
        ['SIGQUIT', IMMEDIATE_MS],
        ['SIGKILL', IMMEDIATE_MS],
      ]
      for (const [name, patienceMs] of how === 'fast' ? steps : steps.slice(1)) {
        if (hasEnded) return
        child.kill(name)
        await Promise.race([ended, delay(patienceMs, undefined, { ref: false })])
      }
    },
  }
}

interface Server extends Postmaster {
  pid: number | undefined
  /** Its last words have arrived. */
  drained: Promise<void>
}

/** Waits until the server says in its own file that it is ready; false if it ended or never was. */
async function isReady(server: Server, data: string, signal: AbortSignal): Promise<boolean> {
  const deadline = monotonic() + START_MS
  while (!server.hasEnded() && !signal.aborted && monotonic() < deadline) {
    const { pid, status } = readPostmaster(data)
    if (pid === server.pid && status === 'ready') return true
    await delay(20)
  }
  return false
}

/** What a server says about itself in its data folder. */
export function readPostmaster(data: string): { pid: number | undefined; status: string } {
  try {
    const lines = readFileSync(join(data, 'postmaster.pid'), 'utf8').split('\n')
    const pid = Number(lines[0])
    return { pid: Number.isInteger(pid) && pid > 0 ? pid : undefined, status: lines[7]?.trim() ?? '' }
  } catch {
    return { pid: undefined, status: '' }
  }
}

/** The port of the last time if it is free, so that saved connections of BI tools keep working. */
async function choosePort(file: string, avoid: number | undefined): Promise<number> {
  const last = lastPort(file)
  const port = last > 0 && last !== avoid && (await freePort(last)) !== undefined ? last : (await freePort(0))!
  try {
    if (port !== last) writeFileSync(file, String(port))
  } catch {
    // A full disk: the next start takes another port.
  }
  return port
}

function lastPort(file: string): number {
  try {
    const port = Number(readFileSync(file, 'utf8'))
    return Number.isInteger(port) && port > 0 && port < 65_536 ? port : 0
  } catch {
    return 0
  }
}

function freePort(wanted: number): Promise<number | undefined> {
  return new Promise((done) => {
    const server = createServer()
    server.once('error', () => done(undefined))
    server.listen(wanted, '127.0.0.1', () => {
      const { port } = server.address() as { port: number }
      server.close(() => done(port))
    })
  })
}
