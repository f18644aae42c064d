import { setMaxListeners } from 'node:events'
import { isOver } from '../../app/all-projects.ts'
import { type OpenSource, openSource, sourceAddress } from '../../app/open-services.ts'
import { REFERENCE } from '../../core/config/choose-source.ts'
import { type Config, learnVariables, loadConfig } from '../../core/config/load.ts'
import { addDays, dayOf } from '../../core/day.ts'
import { InterruptedError, KeyError, messageOf, RefusedError, UsageError } from '../../core/errors.ts'
import { createRedactor } from '../../core/redactor.ts'
import { StreamSet } from '../../streams/registry.ts'
import { settingHint } from '../../warehouse/database-failure.ts'
import { projectNames } from '../project-names.ts'
import type { Session } from '../session.ts'
import { toOneLine } from '../table.ts'
import { checkDatabase, impatient } from './check.ts'

/* The questions of `init`. Each answer is tested before the next question. */

export interface Named {
  id: string
  /** Safe to print. */
  label: string
}

export interface Answers {
  /** Those that are not set yet, by the names of their variables. */
  variables: Record<string, string>
  /** Empty for a key of one project, and for the reference service. */
  projects: Named[]
  brands: (Named & { own: boolean })[]
  schedule: { cron: string; timezone: string } | undefined
}

interface Item {
  id: string
  name?: string | null | undefined
  isOwn?: boolean
}

const ID = /^[\w.:-]{1,255}$/
const MOST_SHOWN = 12
// One request each.
const MOST_PROJECTS_WITH_BRANDS = 20

export async function askQuestions(session: Session): Promise<Answers> {
  const { signal, log, clock } = session
  const prompts = await import('@clack/prompts')
  // Each question listens to it, and none stops listening.
  setMaxListeners(0, signal)
  const terminal = { ...session.terminal!, signal }
  const { redactor } = session.config
  const { env } = learnVariables(redactor, session.env, session.configFile)
  const variables: Record<string, string> = {}

  const answered = <T>(value: T): Exclude<T, symbol> => {
    if (prompts.isCancel(value)) throw new InterruptedError('stopped; nothing was written')
    return value as Exclude<T, symbol>
  }
  const note = (text: string) => prompts.log.success(toOneLine(redactor.text(text)), terminal)
  const load = (more: object = {}, known = redactor) => {
    const all = { ...env, ...variables, ...more, VISIBILITY_CONFIG: '' }
    return impatient(loadConfig({ file: '/dev/null', env: all, redactor: known }))
  }

  /** Asks until an answer passes its test. A variable that is set is tested in place of an answer. */
  async function settle<T>(name: string, ask: () => Promise<string | symbol>, test: () => Promise<T>): Promise<T> {
    const isSet = !!env[name] || !!env[`${name}_FILE`]
    for (;;) {
      if (!isSet) variables[name] = answered(await ask()).trim()
      try {
        const result = await test()
        if (isSet) note(`${name} is set`)
        return result
      } catch (error) {
        if (signal.aborted || isSet) throw error
        const hint = settingHint(error)
        const message = [messageOf(error), ...(hint === undefined ? [] : [hint])].join('. ')
        prompts.log.error(toOneLine(redactor.text(message)), terminal)
      }
    }
  }

  const text = (message: string, placeholder: string) => () => prompts.text({ message, placeholder, ...terminal })
  const hidden = (message: string) => () => prompts.password({ message, ...terminal })

  prompts.intro('visibility-sync: the first configuration', terminal)
  const address = 'Address of the service, ending in /v1 (or "reference")'
  await settle('VISIBILITY_API_URL', text(address, 'https://api.example.com/v1'), async () => {
    if (variables.VISIBILITY_API_URL === '') throw new UsageError('type the address of the service, or "reference"')
    const noKey = { VISIBILITY_API_KEY: 'none', VISIBILITY_API_KEY_FILE: '', VISIBILITY_PROJECTS: '' }
    // Another redactor, because "none" is no secret.
    await withSource(load(noKey, createRedactor()), ({ client }) =>
      client.ping({ key: 'none', projectId: undefined }, { signal }).catch((error: unknown) => {
        if (!(error instanceof RefusedError || error instanceof UsageError)) throw error
      }),
    )
  })

  const isReference = (variables.VISIBILITY_API_URL ?? env.VISIBILITY_API_URL) === REFERENCE
  const askKey = () => settle('VISIBILITY_API_KEY', hidden('Key (hidden)'), () => withSource(load(), readProjects))
  const readable = isReference ? [] : await askKey()

  const database = 'Database (hidden): postgres://user:password@host/name, or "embedded"'
  await settle('DATABASE_URL', hidden(database), async () => note(`database: ${await testDatabase(load())}`))

  const projects = isReference ? [] : await chooseProjects(readable)
  const brands = await withSource(load(), (source) => chooseBrands(source, projects))
  const schedule = await chooseSchedule()
  return { variables, projects, brands, schedule }

  async function withSource<T>(config: Config, work: (source: OpenSource) => Promise<T>): Promise<T> {
    const source = await openSource(config, clock)
    try {
      return await work(source)
    } finally {
      await source.close()
    }
  }

  /** The projects of a company key, none for a key of one project, undefined for a company key that lists none. */
  async function readProjects({ client }: OpenSource): Promise<Item[] | undefined> {
    const caller = { key: load().source.api_key ?? '', projectId: undefined }
    try {
      const { items } = await client.projects(caller, { limit: 1000, offset: 0 }, { signal })
      const found = (items as (Item & { status?: unknown })[]).filter(
        ({ id, status }) => ID.test(id) && !isOver(status),
      )
      if (found.length > 0) return found
    } catch (error) {
      if (error instanceof KeyError || !(error instanceof RefusedError)) throw error
    }
    return client.ping(caller, { signal }).then(
      () => [],
      (error: unknown) => {
        if (error instanceof UsageError) return undefined
        throw error
      },
    )
  }

  async function testDatabase(config: Config): Promise<string> {
    const failures: unknown[] = []
    let said = ''
    const addVerdict = (what: string, work: () => Promise<string>) =>
      work().then(
        (detail) => {
          if (what === 'database') said = detail
          return true
        },
        (error: unknown) => {
          failures.push(error)
          return false
        },
      )
    const opened = { config, log, streams: new StreamSet(config) }
    await checkDatabase(opened, addVerdict, { ids: [], address: sourceAddress(config) })
    if (failures.length > 0) throw failures[0]
    return said
  }

  async function chooseProjects(found: Item[] | undefined): Promise<Named[]> {
    if (env.VISIBILITY_PROJECTS) return []
    if (found === undefined) return typeProjects()
    const named = labelled(found)
    if (named.length < 2) return named
    const message = `Which of the ${named.length} projects?`
    const options = named.map(({ id, label }) => ({ value: id, label, hint: id }))
    const initialValues = named.map(({ id }) => id)
    const chosen = answered(
      await prompts.multiselect({ message, options, initialValues, maxItems: MOST_SHOWN, ...terminal }),
    )
    return named.filter(({ id }) => chosen.includes(id))
  }

  async function typeProjects(): Promise<Named[]> {
    let ids: string[] = []
    await settle('VISIBILITY_PROJECTS', text('Ids of the projects, separated by commas', 'or_…,or_…'), async () => {
      ids = (variables.VISIBILITY_PROJECTS ?? '').split(',').map((id) => id.trim())
      await withSource(load(), async ({ client, projects: asked }) => {
        for (const { caller } of asked) await client.ping(caller, { signal })
      })
    })
    delete variables.VISIBILITY_PROJECTS
    return labelled(ids.map((id) => ({ id })))
  }

  async function chooseBrands(
    { client, projects: usual }: OpenSource,
    chosen: readonly Named[],
  ): Promise<Answers['brands']> {
    const key = load().source.api_key ?? ''
    const callers =
      chosen.length === 0 ? usual.map(({ caller }) => caller) : chosen.map(({ id }) => ({ key, projectId: id }))
    const today = dayOf(clock())
    const options: Record<string, { value: string; label: string }[]> = {}
    const own = new Set<string>()
    const found: Named[] = []
    for (const caller of callers.slice(0, MOST_PROJECTS_WITH_BRANDS)) {
      const brands = await client
        .open(caller, { method: 'GET', path: 'brands' }, { limit: 1000, offset: 0 }, { signal })
        .then(({ items }) =>
          items.map((item) => ({ ...(item as Item), isOwn: (item as { is_own?: unknown }).is_own === true })),
        )
        .catch(async () => {
          const range = { start_date: addDays(today, -7), end_date: today }
          const report = await client.brandsReport(caller, { ...range, dimensions: ['date'], limit: 1000 }, { signal })
          return report.items.map((item) => (item as { brand: Item }).brand)
        })
        .catch((): Item[] => [])
      const named = labelled([...new Map(brands.map((brand) => [brand.id, brand])).values()])
      if (named.length === 0) continue
      const project = chosen.find(({ id }) => id === caller.projectId)?.label ?? caller.projectId ?? 'Brands'
      options[project] = named.map(({ id, label }) => ({ value: id, label }))
      for (const { id, isOwn } of brands) if (isOwn) own.add(id)
      found.push(...named.map(({ id, label }) => ({ id, label: `${label} (${project})` })))
    }
    if (found.length === 0) return []
    const message = 'Which brands are your own?'
    const shown = { message, options, initialValues: [...own], maxItems: MOST_SHOWN, ...terminal }
    const picked = answered(await prompts.groupMultiselect({ ...shown, required: false, selectableGroups: false }))
    return found.flatMap((brand) => {
      const isPicked = picked.includes(brand.id)
      return isPicked || own.has(brand.id) ? [{ ...brand, own: isPicked }] : []
    })
  }

  async function chooseSchedule(): Promise<Answers['schedule']> {
    const { timeZone } = Intl.DateTimeFormat().resolvedOptions()
    const message = 'How often does "serve" sync?'
    const options = [
      // The default.
      { value: '', label: 'every hour' },
      { value: '15 */6 * * *', label: 'every six hours' },
      { value: '0 6 * * *', label: `every day at 6:00 (${timeZone})` },
    ]
    const cron = answered(await prompts.select({ message, options, ...terminal }))
    return cron === '' ? undefined : { cron, timezone: timeZone }
  }
}

/** Names as they may be printed: of several that are equal, each with its id. */
function labelled(items: readonly Item[]): Named[] {
  const usable = items.filter(({ id }) => typeof id === 'string' && ID.test(id))
  const names = new Map(
    usable.flatMap(({ id, name }) => (typeof name === 'string' && name.trim() !== '' ? [[id, name]] : [])),
  )
  const { of } = projectNames(
    usable.map(({ id }) => id),
    names,
  )
  return usable.map(({ id }) => ({ id, label: names.has(id) ? of(id) : id }))
}
