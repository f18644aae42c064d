import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { migrate, readMigrations } from '../src/warehouse/schema/migrate.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { configOf, type Setup, setUp } from './support/setup.ts'

describe('migrations', () => {
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
})

describe('the types of queries', () => {
  /* Typed queries are as good as their types: these must be those of the tables. */

  const SOURCE = readFileSync(new URL('../src/warehouse/database.ts', import.meta.url), 'utf8')

  interface Field {
    type: string
    isNullable: boolean
    hasDefault: boolean
  }

  /** The tables of an interface in the source, with the fields of each. */
  function tablesIn(name: string): Map<string, Map<string, Field>> {
    const begin = SOURCE.indexOf(`export interface ${name} {`)
    const text = SOURCE.slice(SOURCE.indexOf('{', begin) + 1, SOURCE.indexOf('\n}\n', begin))
    return new Map(
      [...text.matchAll(/^ {2}(\w+): (Named(?: & )?)?(?:\{([^}]*)\})?$/gm)].map(([, table, named, body = '']) => [
        table!,
        fieldsIn(`${named === undefined ? '' : 'project_id: string; name: string | null;'}${body}`),
      ]),
    )
  }

  function fieldsIn(body: string): Map<string, Field> {
    const fields = body
      .split(/[;\n]/)
      .map((line) => line.trim())
      .filter((line) => line !== '' && !line.startsWith('/*'))
    return new Map(
      fields.map((line) => {
        const [, name, written] = /^(\w+): (.+)$/.exec(line)!
        const type = written!.replace(/^Generated<(.*)>$/, '$1')
        return [
          name!,
          {
            type: kindOf(type.replace(' | null', '')),
            isNullable: type.endsWith('| null') || type === 'unknown',
            hasDefault: written!.startsWith('Generated<'),
          },
        ]
      }),
    )
  }

  function kindOf(type: string): string {
    if (['string', 'string[]', 'number', 'boolean', 'Date', 'unknown'].includes(type)) return type
    // Unions of words, and names of such unions.
    return 'string'
  }

  const KINDS: Record<string, string> = {
    text: 'string',
    uuid: 'string',
    date: 'string',
    integer: 'number',
    bigint: 'number',
    smallint: 'number',
    'double precision': 'number',
    boolean: 'boolean',
    'timestamp with time zone': 'Date',
    json: 'unknown',
    jsonb: 'unknown',
    ARRAY: 'string[]',
  }

  let setup: Setup
  beforeAll(async () => {
    setup = await setUp({ config: { streams: [], reports: [] } })
  })
  afterAll(() => setup.close())

  test.each([
    ['WarehouseTables', 'visibility'],
    ['OpsTables', 'visibility_ops'],
  ])('the types of %s are those of the tables', async (name, schema) => {
    const tables = tablesIn(name)
    expect(tables.size).toBeGreaterThan(5)
    const rows = await setup.database.rows<Record<'table' | 'column' | 'type' | 'nullable' | 'default', string>>(
      `select table_name as "table", column_name as "column", data_type as type, is_nullable as nullable,
       case when column_default is not null or is_identity = 'YES' then 'YES' else 'NO' end as default
     from information_schema.columns where table_schema = '${schema}' order by 1, 2`,
    )
    for (const [table, fields] of tables) {
      const columns = rows.filter((row) => row.table === table)
      const known = new Map(columns.map((row) => [row.column, row]))
      for (const [field, { type, isNullable, hasDefault }] of fields) {
        const column = known.get(field)
        expect({ table, field, found: column !== undefined }).toEqual({ table, field, found: true })
        const isUnknown = type === 'unknown'
        expect({
          place: `${table}.${field}`,
          type: KINDS[column!.type],
          nullable: isUnknown || column!.nullable === 'YES',
        }).toEqual({ place: `${table}.${field}`, type, nullable: isNullable })
        if (hasDefault) expect(`${table}.${field} ${column!.default}`).toBe(`${table}.${field} YES`)
      }
      // What a row needs is known to the types; columns with a default may be left out.
      const needed = columns.filter((row) => row.nullable === 'NO' && row.default === 'NO').map((row) => row.column)
      expect(needed.filter((column) => !fields.has(column)).map((column) => `${table}.${column}`)).toEqual([])
    }
  })
})
