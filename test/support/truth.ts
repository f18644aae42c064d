import { expect } from '@jest/globals'
import type { Range } from '../../src/core/day.ts'
import { brandReport, chatList } from '../../src/reference/aggregate.ts'
import type { Project, World } from '../../src/reference/world.ts'
import type { TestDatabase } from './postgres.ts'

/* The tables as the service's own answers say they must be, flattened here independently of the program. */

type Row = Record<string, unknown>

const METRICS = [
  'mention_count',
  'visibility',
  'visibility_count',
  'visibility_total',
  'share_of_voice',
  'sentiment',
  'sentiment_sum',
  'sentiment_count',
  'position',
  'position_sum',
  'position_count',
]

const FIELD: Record<string, (row: any) => unknown> = {
  prompt_id: (row) => row.prompt?.id ?? null,
  model_id: (row) => row.model?.id ?? null,
  model_channel_id: (row) => row.model_channel?.id ?? null,
  tag_id: (row) => row.tag?.id ?? null,
  topic_id: (row) => row.topic?.id ?? null,
  country_code: (row) => row.country_code ?? null,
  chat_id: (row) => row.chat?.id ?? null,
}

/** Compares large tables quickly, and shows only the first rows that differ. */
function expectSame(found: Row[], expected: Row[], place: string): void {
  const [left, right] = [sorted(found), sorted(expected)]
  if (left.length === right.length && left.every((row, index) => row === right[index])) return
  const [inTable, inService] = [new Set(left), new Set(right)]
  expect({
    place,
    rows: left.length,
    not_in_service: left.filter((row) => !inService.has(row)).slice(0, 3),
    not_in_table: right.filter((row) => !inTable.has(row)).slice(0, 3),
  }).toEqual({ place, rows: right.length, not_in_service: [], not_in_table: [] })
}

const sorted = (rows: Row[]) => {
  const columns = Object.keys(rows[0] ?? {}).sort()
  return rows.map((row) => JSON.stringify(columns.map((column) => row[column]))).sort()
}

export interface Truth {
  world: World
  range: Range
  reports: { name: string; dimensions: string[] }[]
  /** Rows that are expected to be missing or different are left out of both sides. */
  projects?: Project[]
}

/** Fails where any table differs from the service's answers by a single value. */
export async function expectExact(database: TestDatabase, truth: Truth): Promise<void> {
  for (const project of truth.projects ?? truth.world.projects) {
    for (const report of truth.reports) await expectReport(database, truth, project, report)
    await expectChats(database, truth, project)
    await expectLists(database, project)
  }
}

export async function expectReport(
  database: TestDatabase,
  { world, range }: Truth,
  project: Project,
  report: { name: string; dimensions: string[] },
) {
  const others = report.dimensions.filter((dimension) => dimension !== 'date')
  const expected = brandReport(world, project, { range, dimensions: report.dimensions as never, filters: [] }).map(
    (row: any) => ({
      date: row.date,
      brand_id: row.brand.id,
      ...Object.fromEntries(others.map((dimension) => [dimension, FIELD[dimension]!(row)])),
      ...Object.fromEntries(METRICS.map((metric) => [metric, row[metric] ?? null])),
    }),
  )
  const columns = ['date', 'brand_id', ...others, ...METRICS].join(', ')
  const found = await database.rows(`select ${columns} from visibility.${report.name} where project_id = $1`, [
    project.id,
  ])
  expectSame(found, expected, report.name)
}

export async function expectChats(database: TestDatabase, { world, range }: Truth, project: Project) {
  const expected = chatList(world, project, range, () => true).map((chat: any) => ({
    chat_id: chat.id,
    prompt_id: chat.prompt.id,
    model_id: chat.model.id,
    model_channel_id: chat.model_channel.id,
    date: chat.date,
  }))
  const found = await database.rows(
    'select chat_id, prompt_id, model_id, model_channel_id, date from visibility.chats where project_id = $1',
    [project.id],
  )
  expectSame(found, expected, 'chats')
}

async function expectLists(database: TestDatabase, project: Project) {
  const prompts = await database.rows(
    `select prompt_id, text, topic_id, country_code, volume,
       (select coalesce(array_agg(tag_id order by tag_id), '{}') from visibility.prompt_tags t
        where t.project_id = p.project_id and t.prompt_id = p.prompt_id) as tags
     from visibility.prompts p where project_id = $1 and removed_at is null`,
    [project.id],
  )
  expect(sorted(prompts)).toEqual(
    sorted(
      project.prompts.map((prompt) => ({
        prompt_id: prompt.id,
        text: prompt.text,
        topic_id: prompt.topicId,
        country_code: prompt.country,
        volume: prompt.volume === undefined ? null : String(prompt.volume),
        tags: [...new Set(prompt.tagIds)].sort(),
      })),
    ),
  )
  const classifications = await database.rows(
    'select name, color from visibility.domain_classifications where project_id = $1 and removed_at is null',
    [project.id],
  )
  expect(sorted(classifications)).toEqual(sorted(project.classifications))
  const brands = await database.rows('select brand_id, name from visibility.brands where project_id = $1', [project.id])
  expect(sorted(brands)).toEqual(sorted(project.brands.map(({ id, name }) => ({ brand_id: id, name }))))
}
