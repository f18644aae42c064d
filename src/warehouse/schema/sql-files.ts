import { readFileSync } from 'node:fs'
import { escapeLiteral } from 'pg'
import { quote } from '../../core/identifier.ts'
import { packageFile } from '../../core/package-files.ts'
import type { Warehouse } from '../connect.ts'
import { runText } from '../database.ts'

export const REPORT = /\{report [\w ]+\}/g

export function readSql(path: string): string {
  return readFileSync(packageFile(`sql/${path}.sql`), 'utf8')
}

export function withParts(text: string): string {
  return text.replaceAll(/\{part (\w+)\}/g, (_, part: string) => readSql(`views/parts/${part}`).trimEnd())
}

export function fillIn(text: string, warehouse: Pick<Warehouse, 'schema' | 'opsSchema'>, report = ''): string {
  return withParts(text)
    .replaceAll('{schema}', quote(warehouse.schema))
    .replaceAll('{ops}', quote(warehouse.opsSchema))
    .replaceAll('{stream}', escapeLiteral(report))
    .replaceAll(REPORT, quote(warehouse.schema, report))
}

export function runQuery<Row>(warehouse: Warehouse, name: string, values: readonly unknown[]): Promise<Row[]> {
  return runText<Row>(warehouse.db, fillIn(readSql(`queries/${name}`), warehouse), values)
}
