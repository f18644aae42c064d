import type { EmbeddedPostgres } from '../../src/warehouse/embedded/server.ts'

export default async function tearDown(): Promise<void> {
  await (globalThis as { testServer?: EmbeddedPostgres }).testServer?.release()
}
