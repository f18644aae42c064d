import { sql } from 'kysely'
import { type Config, daysOfInterest } from '../../core/config/load.ts'
import { type Day, dayOf, type Range } from '../../core/day.ts'
import { DownError, InterruptedError, messageOf, RefusedError } from '../../core/errors.ts'
import { failureCodeOf, reportedCode } from '../../core/failure-code.ts'
import { addSeconds, monotonic } from '../../core/waiting.ts'
import { identifyRejects, saveRejects } from '../../ledger/quarantine.ts'
import { forgetNotOffered, readNotOffered, saveDrift } from '../../ledger/service-notes.ts'
import { PackedRows } from '../../rows/packed-rows.ts'
import { sift } from '../../rows/sift.ts'
import type { CallContext } from '../../source/client.ts'
import type { ListStream } from '../../streams/stream.ts'
import type { Warehouse } from '../../warehouse/connect.ts'
import { insertNewRows } from '../../warehouse/load/stage.ts'
import { inTransaction, type Transaction } from '../../warehouse/transaction.ts'
import { noteNotOffered } from './execute.ts'
import { emptyReport, type StreamReport } from './report.ts'
import type { Run, SyncedProject } from './run.ts'
import { countLoad, countRequest, type Observer } from './task.ts'

/*
 * The contents of chats, one request each, after everything else was read. Each batch is loaded by itself, so a run that ends
 * early loses at most the requests of one batch, and the next run goes on with the chats that are left.
 */

const BATCH = 20
/** So many ids are read from the table at once. */
const FETCHED = 1000
/** Within one run. A chat that fails more often is left to the next run. */
const MOST_TRIES = 3
const GONE = [404, 410]

type Settings = NonNullable<Config['chat_contents']>

/** One answer: the content as it came, a chat that is gone, or why there is none. */
interface Read {
  id: string
  content?: Record<string, unknown>
  needsTextCheck?: boolean
  gone?: number
  error?: unknown
}

interface Reading {
  run: Run
  project: SyncedProject
  stream: ListStream
  settings: Settings
  report: StreamReport
  observer: Observer
  context: CallContext
}

/** Reads as many as the budget of the day allows, of each project; gives what became of it. */
export async function readChatContents(
  run: Run,
  projects: readonly SyncedProject[],
  stream: ListStream,
  observer: Observer,
): Promise<StreamReport[]> {
  const settings = run.config.chat_contents
  if (settings === undefined) return []
  const reports: StreamReport[] = []
  for (const project of projects) {
    if (run.signal.aborted) break
    const known = await run.retry(() => readNotOffered(run.warehouse, [project.id], run.clock()))
    if (known.some(({ stream: name, project_id }) => name === CONTENTS && project_id === project.id)) continue
    const report = emptyReport(project.id, CONTENTS)
    reports.push(report)
    const onAttempt = (status: number | undefined) => countRequest({ report, observer }, status)
    const context = { signal: run.signal, onAttempt }
    await readProject({ run, project, stream, settings, report, observer, context }).catch((error: unknown) => {
      if (run.signal.aborted || error instanceof InterruptedError) return
      fail(report, 'the contents of chats', error)
    })
  }
  return reports
}

async function readProject(reading: Reading): Promise<void> {
  const { run, project, settings, report } = reading
  const interest = daysOfInterest(run.config, dayOf(run.clock()))
  const tries = new Map<string, number>()
  let queue: string[] = []
  while (!run.signal.aborted) {
    if (queue.length === 0) {
      // Chats that failed in this run are still due.
      const due = await run.retry(() =>
        dueChats(run.warehouse, settings, { projectId: project.id, range: interest, limit: FETCHED + tries.size }),
      )
      queue = due.ids.filter((id) => !tries.has(id))
    }
    const wanted = queue.splice(0, BATCH)
    if (wanted.length === 0) return
    const taken = await takeBudget(reading, wanted.length)
    if (taken === 0) return
    const answers = await askAll(reading, wanted.slice(0, taken))
    const status = await statusOfRefusal(reading, answers)
    // The next day asks for the same chats again.
    if (status === 'unknown') return
    if (status !== undefined) {
      await noteNotOffered(run, reading, status, reading.context)
      report.not_offered = status
      return
    }
    await load(reading, answers)
    for (const { id, error } of answers) {
      if (error === undefined) continue
      // Other chats of the project would fail for the same reason, and use up the budget.
      if (error instanceof DownError || error instanceof RefusedError) throw error
      const times = (tries.get(id) ?? 0) + 1
      tries.set(id, times)
      if (times < MOST_TRIES) queue.push(id)
      else fail(report, id, error)
    }
  }
}

function takeBudget({ run, project, settings }: Reading, wanted: number): Promise<number> {
  const projectDay = { projectId: project.id, day: dayOf(run.clock()) }
  const budget = { wanted, budget: settings.requests_per_day }
  return run.retry(() => takeRequests(run.warehouse, projectDay, budget))
}

async function askAll(reading: Reading, ids: readonly string[]): Promise<Read[]> {
  const left = [...ids]
  const answers: Read[] = []
  const work = async () => {
    for (let id = left.shift(); id !== undefined; id = left.shift()) answers.push(await ask(reading, id))
  }
  await Promise.all(Array.from({ length: reading.run.config.source.concurrency }, work))
  return answers
}

async function ask({ run, project, context }: Reading, id: string): Promise<Read> {
  try {
    return { id, ...(await run.client.chatContent(project.caller, id, context)) }
  } catch (error) {
    if (run.signal.aborted || error instanceof InterruptedError) throw error
    const status = error instanceof RefusedError ? error.status : undefined
    return GONE.includes(status ?? 0) ? { id, gone: status! } : { id, error }
  }
}

/**
 * The status by which the service says that it offers no contents. Such a service may also answer as if every chat were gone. So
 * if a batch has chats that are gone and no content, a chat is asked for whose content was read before. Only if that is there, the
 * others are gone.
 */
async function statusOfRefusal(reading: Reading, answers: readonly Read[]): Promise<number | 'unknown' | undefined> {
  for (const { error } of answers)
    if (error instanceof RefusedError && [403, 405].includes(error.status ?? 0)) return error.status
  const gone = answers.find((answer) => answer.gone !== undefined)?.gone
  if (gone === undefined || answers.some(({ content }) => content !== undefined)) return undefined
  const { run, project } = reading
  const known = await run.retry(() => readChat(run.warehouse, project.id))
  if (known === undefined) return gone
  if ((await takeBudget(reading, 1)) === 0) return 'unknown'
  const control = await ask(reading, known)
  if (control.error !== undefined) throw control.error
  return control.gone === undefined ? undefined : gone
}

async function load({ run, project, stream, report, observer }: Reading, answers: readonly Read[]): Promise<void> {
  const startedAt = monotonic()
  const { warehouse, runId } = run
  const projectStream = { projectId: project.id, stream: stream.name }
  const read = answers.flatMap(({ id, content, needsTextCheck }) =>
    content === undefined ? [] : [{ id, needsTextCheck, item: { ...content, id: content.id ?? id } }],
  )
  const items = read.map(({ item }) => item)
  const needsTextCheck = read.some((one) => one.needsTextCheck)
  const other = read.find(({ id, item }) => typeof item.id === 'string' && item.id !== id)
  if (other !== undefined)
    throw new RefusedError(`GET /chats/{id}/content: asked for ${other.id}, got the content of another chat`)
  const sifted = sift(stream, items, { needsTextCheck }, new PackedRows(stream.columns, project.id))
  const unread = [
    ...answers.flatMap(({ id, gone }) => (gone === undefined ? [] : [{ id, status: gone }])),
    ...sifted.rejects.map(({ index }) => ({ id: read[index]!.id, status: QUARANTINED })),
  ]
  if (read.length + unread.length === 0) return
  const { inserted, quarantined } = await run.retry(() =>
    inTransaction(
      warehouse,
      async (tx) => {
        const identified = await identifyRejects(tx, projectStream, sifted.rejects)
        const added = await insertNewRows(tx, stream, sifted.rows)
        // Not the whole list: what is not in it is not resolved.
        await saveRejects(tx, projectStream, identified, { runId, isHeld: true })
        await saveDrift(tx, projectStream, sifted.drift, runId)
        await saveUnread(tx, project.id, unread)
        if (read.length > 0) await forgetNotOffered(tx, projectStream)
        run.signal.throwIfAborted()
        return { inserted: added, quarantined: identified.undismissed }
      },
      run.signal,
    ),
  )
  const seconds = (monotonic() - startedAt) / 1000
  const effect = { inserted, updated: 0, deleted: 0, unchanged: sifted.rows.length - inserted, held: undefined }
  const summary = { range: undefined, rowsRead: read.length, rejects: quarantined, effect }
  countLoad({ report, observer }, summary, seconds)
  report.seconds = addSeconds(report.seconds, seconds)
}

function fail(report: StreamReport, range: string, error: unknown): void {
  report.failed.push({ range, error: messageOf(error), code: reportedCode(failureCodeOf(error)) })
}

/* Which chats are still to be read, and how much of the day's budget is left. */

export const CONTENTS = 'chat_contents'
/** The status of a chat whose content is in quarantine. */
const QUARANTINED = 200

/**
 * Chats of the days of interest that are asked for and were not read yet, the newest first, and how many there are in all. A share is taken by a hash of the id: the same chats
 * in every run, and more of them when the share grows.
 */
export async function dueChats(
  { db }: Warehouse,
  { share, prompts }: Settings,
  { projectId, range: { from, to }, limit }: { projectId: string; range: Range; limit: number },
): Promise<{ ids: string[]; count: number }> {
  const { rows } = await sql<{ chat_id: string; whole: number }>`
    select c.chat_id, count(*) over ()::integer as whole from data.chats c
    where c.project_id = ${projectId} and c.date between ${from} and ${to}
      and ('x' || substr(md5(c.chat_id), 1, 8))::bit(32)::bigint < ${share ?? 1}::double precision * 4294967296
      and (${prompts ?? null}::text[] is null or c.prompt_id = any(${prompts ?? null}))
      and not exists (select from data.chat_contents t where t.project_id = c.project_id and t.chat_id = c.chat_id)
      and not exists (select from ops.unread_chats u where u.project_id = c.project_id and u.chat_id = c.chat_id)
    order by c.date desc, c.chat_id limit ${limit}`.execute(db)
  return { ids: rows.map(({ chat_id }) => chat_id), count: rows[0]?.whole ?? 0 }
}

/** A chat whose content was read, to find out whether contents are still offered. */
async function readChat({ db }: Warehouse, projectId: string): Promise<string | undefined> {
  const { rows } = await sql<{ chat_id: string }>`
    select chat_id from data.chat_contents where project_id = ${projectId}
    order by first_seen_at desc limit 1`.execute(db)
  return rows[0]?.chat_id
}

export async function usedRequests({ db }: Warehouse, projectId: string, day: Day): Promise<number> {
  const found = await db
    .selectFrom('ops.daily_requests')
    .select('requests')
    .where((eb) => eb.and({ project_id: projectId, stream: CONTENTS, day }))
    .executeTakeFirst()
  return found?.requests ?? 0
}

/**
 * Takes requests from the day's budget: as many as wanted, or as there are. They are counted before they are sent, so that
 * neither a crash nor another run makes it more than the budget.
 */
async function takeRequests(
  { db }: Warehouse,
  { projectId, day }: { projectId: string; day: Day },
  { wanted, budget }: { wanted: number; budget: number },
): Promise<number> {
  await sql`
    insert into ops.daily_requests (project_id, stream, day, requests)
    values (${projectId}, ${CONTENTS}, ${day}, 0) on conflict do nothing`.execute(db)
  const { rows } = await sql<{ taken: number }>`
    update ops.daily_requests t set requests = t.requests + least(${wanted}::integer, ${budget}::integer - t.requests)
    from (
      select requests from ops.daily_requests where project_id = ${projectId} and stream = ${CONTENTS} and day = ${day} for update
    ) before
    where t.project_id = ${projectId} and t.stream = ${CONTENTS} and t.day = ${day} and before.requests < ${budget}
    returning t.requests - before.requests as taken`.execute(db)
  return rows[0]?.taken ?? 0
}

/** Has chats whose contents were rejected asked for again. */
export async function askRejectedAgain({ db }: Pick<Warehouse, 'db'>, projectIds: readonly string[]): Promise<void> {
  await db
    .deleteFrom('ops.unread_chats')
    .where('project_id', 'in', [...projectIds])
    .where('status', '=', 200)
    .execute()
}

/** Chats that are not asked for again. */
async function saveUnread(
  { db }: Transaction,
  projectId: string,
  chats: readonly { id: string; status: number }[],
): Promise<void> {
  if (chats.length === 0) return
  await db
    .insertInto('ops.unread_chats')
    .values(chats.map(({ id, status }) => ({ project_id: projectId, chat_id: id, status })))
    .onConflict((conflict) => conflict.doNothing())
    .execute()
}
