import { spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, rmSync, statfsSync, writeFileSync } from 'node:fs'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startEmbedded } from '../../src/warehouse/embedded/server.ts'
import { createTemplates } from './postgres.ts'

/** Nothing here has to outlive a power failure, and no database lives long enough to need vacuuming. */
const SETTINGS = {
  ...{ fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off', wal_level: 'minimal', max_wal_senders: '0' },
  ...{ max_wal_size: '512MB', checkpoint_timeout: '1h', autovacuum: 'off', jit: 'off' },
}

/** In memory if that has room and may run programs: a database is copied there with a fifth of the CPU time. */
function makeFolder(): string {
  const memory = '/dev/shm'
  if (existsSync(memory) && statfsSync(memory).bavail * statfsSync(memory).bsize > 1024 ** 3) {
    const folder = mkdtempSync(join(memory, 'visibility-sync-test-'))
    const program = join(folder, 'program')
    writeFileSync(program, '#!/bin/sh\n', { mode: 0o700 })
    if (spawnSync(program).status === 0) return folder
    rmSync(folder, { recursive: true })
  }
  return mkdtempSync(join(tmpdir(), 'visibility-sync-test-'))
}

/** One Postgres for all test files: the embedded one, or that of TEST_DATABASE_URL. Each file makes its own databases. */
export default async function setUp(): Promise<void> {
  if (process.env.TEST_DATABASE_URL) {
    process.env.TEST_SERVER_URL = process.env.TEST_DATABASE_URL
    await createTemplates()
    return
  }
  const folder = makeFolder()
  // Removes the folder when this process ends, however that happens. A server without its folder ends by itself.
  const stdio = ['pipe' as const, 'ignore' as const, 'ignore' as const]
  const cleaner = spawn('/bin/sh', ['-c', 'read _; rm -rf "$1"', 'sh', folder], { stdio, detached: true })
  cleaner.unref()
  ;(cleaner.stdin as Socket).unref()
  const server = await startEmbedded({ folder, settings: SETTINGS })
  process.env.TEST_SERVER_URL = server.url
  // For the folders of tests.
  process.env.TMPDIR = join(folder, 'tmp')
  mkdirSync(process.env.TMPDIR)
  await createTemplates()
  Object.assign(globalThis, { testServer: server })
}
