import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startEmbedded } from '../../src/warehouse/embedded/server.ts'
import { createTemplates } from './postgres.ts'

/** One Postgres for all test files: the embedded one, or that of TEST_DATABASE_URL. Each file makes its own databases. */
export default async function setUp(): Promise<void> {
  if (process.env.TEST_DATABASE_URL) {
    process.env.TEST_SERVER_URL = process.env.TEST_DATABASE_URL
    await createTemplates()
    return
  }
  const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-test-'))
  // Nothing here has to outlive a power failure.
  const server = await startEmbedded({
    folder,
    settings: { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' },
  })
  process.env.TEST_SERVER_URL = server.url
  await createTemplates()
  Object.assign(globalThis, { testServer: server, testFolder: folder })
}
