import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { migrate, readMigrations } from '../src/warehouse/schema/migrate.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { configOf } from './support/setup.ts'

let database: TestDatabase
beforeAll(async () => {
  database = await createDatabase('migrated')
})
afterAll(() => database.drop())

test('no migration was edited since it was added', () => {
  const kept = readFileSync(new URL('../sql/migrations/checksums.txt', import.meta.url), 'utf8')
  const lines = readMigrations().map(({ name, checksum }) => `${checksum}  ${name}`)
  expect(kept.trim().split('\n')).toEqual(lines)
})

test('a database whose migration differs from the file is refused', async () => {
  await database.rows("update visibility_ops.migrations set checksum = 'other' where version = 3")
  await expect(migrate(database.warehouse, configOf({}))).rejects.toThrow(
    /0003_\w+\.sql is not the one that was applied/,
  )
  // Versions before 0.3 kept no checksums.
  await database.rows('update visibility_ops.migrations set checksum = null')
  expect((await migrate(database.warehouse, configOf({ reports: [] }))).applied).toEqual([])
})
