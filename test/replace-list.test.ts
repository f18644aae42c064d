import { describe, expect, test } from '@jest/globals'
import { PackedRows } from '../src/rows/packed-rows.ts'
import { prompts } from '../src/streams/prompts.ts'
import { type ListEffect, listSnapshots, replaceList } from '../src/warehouse/load/replace-list.ts'
import { readSnapshot } from '../src/warehouse/load/row-digest.ts'
import { inTransaction, type Transaction } from '../src/warehouse/transaction.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'

interface Prompt {
  text?: string
  topic?: string
  country?: string
  tags?: string[]
}

interface How {
  project?: string
  mayDelete?: boolean
  acceptDeletes?: boolean
}

/** Makes the list of a project equal to these prompts, by their ids. */
async function replaceIn(tx: Transaction, list: Record<string, Prompt>, how: How = {}): Promise<ListEffect> {
  const { project = 'or_1', mayDelete = true, acceptDeletes = false } = how
  const { rows: snapshots } = await listSnapshots(project, prompts).execute(tx.db)
  const before = snapshots.map(readSnapshot)
  const rows = Object.entries(list).map(([id, { text = id, topic = null, country = null }]) => {
    return [id, text, '[]', topic, null, country, null]
  })
  const tags = Object.entries(list).flatMap(([id, { tags: ids = [] }]) => ids.map((tag) => [id, tag]))
  const load = {
    projectId: project,
    stream: prompts,
    rows: PackedRows.of(prompts.columns, project, rows),
    children: new Map([['prompt_tags', tags]]),
    mayDelete,
    acceptDeletes,
  }
  return replaceList(tx, load, before)
}

const replace = ({ warehouse }: TestDatabase, list: Record<string, Prompt>, how?: How) =>
  inTransaction(warehouse, (tx) => replaceIn(tx, list, how))

const start = () => createDatabase('reports')

async function listed({ rows }: TestDatabase, project = 'or_1'): Promise<string[]> {
  const found = await rows<{ prompt_id: string }>(
    'select prompt_id from visibility.prompts where project_id = $1 and removed_at is null order by 1',
    [project],
  )
  return found.map(({ prompt_id }) => prompt_id)
}

describe('the history of a prompt', () => {
  const changes: [string, Prompt, string[]][] = [
    ['text', { text: 'Other' }, []],
    ['topic', { topic: 'to_2' }, ['topic_id']],
    ['country', { country: 'US' }, ['country_code']],
    ['tag', { tags: ['tg_1', 'tg_2'] }, ['tag_id']],
  ]
  const FIRST: Prompt = { text: 'One', topic: 'to_1', country: 'DE', tags: ['tg_1'] }

  test.each(changes)('gets a row for another %s, and only for that prompt', async (_, change, regrouped) => {
    const database = await start()
    await replace(database, { pr_1: FIRST, pr_2: FIRST })
    await replace(database, { pr_1: FIRST, pr_2: FIRST }, { project: 'or_2' })
    const effect = await replace(database, { pr_1: { ...FIRST, ...change }, pr_2: FIRST })
    expect(effect.regrouped).toEqual(regrouped)
    const rowsOf = ({ text, topic, country, tags }: Prompt, open: boolean) => ({
      text,
      topic_id: topic,
      country_code: country,
      tags,
      open,
    })
    expect(
      await database.rows(
        `select text, topic_id, country_code, tags, valid_to is null as open from visibility.prompt_history
         where project_id = 'or_1' and prompt_id = 'pr_1' order by valid_from`,
      ),
    ).toEqual([rowsOf(FIRST, false), rowsOf({ ...FIRST, ...change }, true)])
    expect(
      await database.rows(
        `select project_id, prompt_id from visibility.prompt_history where (project_id, prompt_id) <> ('or_1', 'pr_1')`,
      ),
    ).toHaveLength(3)
  })

  const times = ({ rows }: TestDatabase) =>
    rows<{ valid_from: Date; valid_to: Date | null }>(
      'select valid_from, valid_to from visibility.prompt_history order by valid_from',
    )

  test('begins when the change is seen, not when the transaction began', async () => {
    const database = await start()
    const now = async () => (await database.rows<{ now: Date }>('select clock_timestamp() as now'))[0]!.now
    await replace(database, { pr_1: {} })
    const later = await inTransaction(database.warehouse, async (tx) => {
      const time = await now()
      await replaceIn(tx, { pr_1: { text: 'Other' }, pr_2: {} })
      return time
    })
    const [closed, ...open] = await times(database)
    expect(closed!.valid_to! >= later).toBe(true)
    expect(open.map(({ valid_from }) => valid_from >= later)).toEqual([true, true])
    const last = await now()
    await replace(database, { pr_1: { text: 'Other' }, pr_2: {}, pr_3: {} })
    expect((await times(database)).at(-1)!.valid_from >= last).toBe(true)
  })

  test('has no gap and no overlap, also if a row begins in the future', async () => {
    const database = await start()
    await replace(database, { pr_1: {} })
    await database.rows("update visibility.prompt_history set valid_from = now() + interval '1 day'")
    for (const text of ['Second', 'Third', 'Fourth']) await replace(database, { pr_1: { text } })
    const found = await database.rows<Record<string, boolean>>(
      `select valid_to > valid_from is not false as forward,
         valid_to is not distinct from lead(valid_from) over (order by valid_from) as next
       from visibility.prompt_history`,
    )
    expect(found).toEqual(Array.from({ length: 4 }, () => ({ forward: true, next: true })))
  })

  test('keeps its open row while the prompt is removed, and when it comes back', async () => {
    const database = await start()
    const list = { pr_1: {}, pr_2: {}, pr_3: {} }
    await replace(database, list)
    const before = await times(database)
    await replace(database, { pr_1: {}, pr_2: {} })
    await replace(database, list)
    expect(await times(database)).toEqual(before)
  })
})

describe('a list', () => {
  const LIST = { pr_1: { tags: ['tg_1'] }, pr_2: {}, pr_3: {}, pr_4: {} }
  const HALF = { pr_1: { tags: ['tg_1'] }, pr_2: {} }

  test('loses up to half of its rows, which come back as they were', async () => {
    const database = await start()
    await replace(database, LIST)
    await replace(database, LIST, { project: 'or_2' })
    expect(await replace(database, HALF)).toMatchObject({ deleted: 2, unchanged: 2, rows: 2, held: undefined })
    expect([await listed(database), await listed(database, 'or_2')]).toEqual([Object.keys(HALF), Object.keys(LIST)])
    expect(await replace(database, LIST)).toMatchObject({ inserted: 0, updated: 2, deleted: 0, rows: 4 })
    expect(await listed(database)).toEqual(Object.keys(LIST))
  })

  test('is held if it would lose more than half, with its other changes, until that is accepted', async () => {
    const database = await start()
    await replace(database, LIST)
    const few = { pr_1: { text: 'Other' }, pr_5: {} }
    const held = await replace(database, few)
    expect(held).toMatchObject({ inserted: 0, updated: 0, deleted: 0, rows: 4, held: { present: 4, vanishing: 3 } })
    expect(await listed(database)).toEqual(Object.keys(LIST))
    expect(await replace(database, few, { acceptDeletes: true })).toMatchObject({ inserted: 1, updated: 1, deleted: 3 })
    expect(await listed(database)).toEqual(['pr_1', 'pr_5'])
  })

  test('loses no row to an answer with rejects, which may still change and add rows', async () => {
    const database = await start()
    await replace(database, LIST)
    const answer = { pr_1: { text: 'Other' }, pr_2: {}, pr_3: {}, pr_5: {} }
    const effect = await replace(database, answer, { mayDelete: false })
    expect(effect).toMatchObject({ inserted: 1, updated: 1, deleted: 0, rows: 5 })
    expect(await listed(database)).toEqual(['pr_1', 'pr_2', 'pr_3', 'pr_4', 'pr_5'])
  })

  test('gets the tags of the answer for listed prompts; those of removed ones stay', async () => {
    const database = await start()
    await replace(database, { pr_1: { tags: ['tg_1'] }, pr_2: { tags: ['tg_1', 'tg_2'] }, pr_3: {} })
    await replace(database, { pr_2: { tags: ['tg_2', 'tg_3'] }, pr_3: {} })
    const found = await database.rows<{ prompt_id: string; tag_id: string }>(
      'select prompt_id, tag_id from visibility.prompt_tags order by 1, 2',
    )
    expect(found.map(({ prompt_id, tag_id }) => `${prompt_id} ${tag_id}`)).toEqual([
      'pr_1 tg_1',
      'pr_2 tg_2',
      'pr_2 tg_3',
    ])
  })

  test('that is as answered is not written, but is if only a tag was changed by hand', async () => {
    const database = await start()
    await replace(database, LIST)
    const versions = () =>
      database.rows('select xmin from visibility.prompts union all select xmin from visibility.prompt_tags')
    const before = await versions()
    expect(await replace(database, LIST)).toMatchObject({ inserted: 0, updated: 0, unchanged: 4, rows: 4 })
    expect(await versions()).toEqual(before)
    await database.rows("update visibility.prompt_tags set tag_id = 'tg_9'")
    await replace(database, LIST)
    expect(await database.rows('select tag_id from visibility.prompt_tags')).toEqual([{ tag_id: 'tg_1' }])
  })
})
