import { configuredProjects, openWarehouse, queueName, sourceAddress } from '../../app/open-services.ts'
import { chosenSource } from '../../core/config/choose-source.ts'
import { count } from '../../core/text.ts'
import { moveSource } from '../../ledger/source.ts'
import { applyLabels, applyOwnBrands } from '../../warehouse/load/own-brands.ts'
import { withRetries } from '../../warehouse/retry.ts'
import { migrate as runMigrations } from '../../warehouse/schema/migrate.ts'
import { recheckSummaries, refreshSummaries } from '../../warehouse/schema/summaries.ts'
import type { ViewResult } from '../../warehouse/schema/views.ts'
import type { Session } from '../session.ts'
import { aboutRequests, makePlan, type Plan } from './plan.ts'

export async function migrate(session: Session, options: { moveSource?: boolean } = {}): Promise<number> {
  const { config, log, clock, signal, streams } = session
  const { warehouse, shown, close } = await openWarehouse(config, log)
  try {
    const retry = <T>(work: () => Promise<T>) => withRetries(warehouse, signal, work)
    // A run of an earlier version may be in the way.
    const { applied, reportsMade, repaired, views } = await retry(() => runMigrations(warehouse, config))
    const address = options.moveSource ? sourceAddress(config) : ''
    const movedFrom = options.moveSource ? await moveSource(warehouse, address) : undefined
    const ids = configuredProjects(config, clock).map(({ id }) => id)
    await retry(async () => {
      await applyLabels(warehouse, ids, config.labels)
      await applyOwnBrands(warehouse, ids, config.labels)
      await recheckSummaries(warehouse, config)
      await refreshSummaries(warehouse, config, signal)
    })
    if (config.queue.mode === 'pg-boss') {
      const { openQueue } = await import('../../queue/boss.ts')
      await (await openQueue(warehouse, await queueName(config, streams, clock), log)).close()
    }
    const isCurrent = applied.length + reportsMade.length + repaired.length + views.made.length === 0
    // The tables can be made before it is known what fills them.
    const next = chosenSource(config) && (await makePlan(session, {})).document
    const document = {
      ...{ warehouse: shown, applied, reports_made: reportsMade, views_made: views.made, repaired },
      ...{ views_left_out: views.left, views_empty: views.empty, source_moved_from: movedFrom ?? null },
      next_sync_requests: next?.requests ?? null,
    }
    session.print(document, [
      ...(isCurrent
        ? [`Nothing to do: ${shown} is up to date.`]
        : [
            listed(`${count(applied.length, 'migration')} applied to ${shown}`, applied),
            listed(`${count(reportsMade.length, 'report table')} made`, reportsMade),
            listed(`${count(views.made.length, 'view')} made or replaced`, views.made),
          ]),
      ...repaired.map((note) => `Repaired: ${note}`),
      movedFrom && `The source moved from ${movedFrom} to ${address}`,
      ...aboutViews(views, isCurrent),
      !isCurrent && next && nextSync(next),
    ])
    return 0
  } finally {
    await close()
  }
}

const nextSync = (plan: Plan) => `Next sync: ${aboutRequests(plan).toLowerCase()}; "plan" lists them`

const listed = (what: string, names: readonly string[]) => what + (names.length > 0 ? `: ${names.join(', ')}` : '')

function aboutViews({ left, empty }: ViewResult, isShort: boolean): string[] {
  const kinds = [
    ['Left out', left],
    ['Empty', empty],
  ] as const
  return kinds.flatMap(([what, views]) => {
    const names = views.map(({ name }) => name)
    if (isShort) return names.length > 0 ? [`${listed(what, names)}; --json has the reasons`] : []
    return views.map(({ name, reason }) => `${what}: the view ${name}, which ${reason}`)
  })
}
