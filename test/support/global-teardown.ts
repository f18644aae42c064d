import { rmSync } from 'node:fs'
import type { EmbeddedPostgres } from '../../src/warehouse/embedded/server.ts'

export default async function tearDown(): Promise<void> {
  const { testServer, testFolder } = globalThis as { testServer?: EmbeddedPostgres; testFolder?: string }
  await testServer?.release()
  if (testFolder !== undefined) rmSync(testFolder, { recursive: true, force: true })
}
