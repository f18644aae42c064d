import type { Config, ReportConfig } from '../core/config/load.ts'
import { shownText } from '../core/config/secrets.ts'
import { UsageError } from '../core/errors.ts'
import { didYouMean, inQuotes } from '../core/text.ts'
import { type BaseStream, EXTRA_STREAMS, type ExtraStream, type Filter, labelOf } from '../core/vocabulary.ts'
import { brandReport } from './brand-report.ts'
import { CHAT_CONTENTS, chats } from './chats.ts'
import { definedStream } from './defined-stream.ts'
import { domainClassifications, extraList, projectProfile } from './extra-lists.ts'
import { withExtra } from './keep-unknown.ts'
import { promptSuggestions, prompts } from './prompts.ts'
import { customDefinition, sourceReport } from './source-report.ts'
import { type DayStream, isCompared, isControl, type Stream, type Value } from './stream.ts'

const BASE: Record<BaseStream, Stream> = {
  project_profile: projectProfile,
  prompts,
  prompt_suggestions: promptSuggestions,
  domain_classifications: domainClassifications,
  chats,
}

/** The configured streams by name, without making them: their schemas take longer than reading a configuration. */
export function streamKinds(config: Config): Pick<Stream, 'name' | 'by' | 'table'>[] {
  return [
    ...baseStreams(config).map((name) => BASE[name]),
    ...extraStreams(config).map((name) => extraList(name)),
    ...config.reports.map(({ name }) => ({ name, table: name, by: 'day' as const })),
    ...config.custom_streams.map(({ name, by }) => ({ name, table: name, by })),
  ]
}

function baseStreams({ streams }: Config): BaseStream[] {
  return streams.filter((name): name is BaseStream => Object.hasOwn(BASE, name))
}

function extraStreams({ streams, extras }: Config): ExtraStream[] {
  return EXTRA_STREAMS.filter((name) => extras === 'auto' || extras.includes(name) || streams.includes(name))
}

export function reportStream(report: ReportConfig): DayStream {
  const { of = 'brands' } = report
  return of === 'brands' ? brandReport(report) : (definedStream(sourceReport(report, of)) as DayStream)
}

/** The configured streams. They are made once and used as long as the process works for this configuration. */
export class StreamSet {
  /** Lists before dated ones. */
  readonly all: readonly Stream[]
  private readonly controls = new Map<string, DayStream>()

  constructor(config: Config) {
    const reports = config.reports.map(reportStream)
    const streams: Stream[] = [
      ...baseStreams(config).map((name) => BASE[name]),
      ...extraStreams(config).map((name) => definedStream(extraList(name), labelsOf(config.labels, name))),
      ...reports,
      ...config.custom_streams.map((custom) => definedStream(customDefinition(custom))),
      ...(config.chat_contents === undefined ? [] : [{ ...definedStream(CHAT_CONTENTS), perChat: true }]),
    ]
    const { keep_unknown_fields: keep } = config
    if (Array.isArray(keep)) refuseUnknown('keep_unknown_fields', keep, streams, shownText)
    const isKept = ({ name }: Stream) => keep === true || (Array.isArray(keep) && keep.includes(name))
    const { ignore } = config.reconcile
    refuseUnknown('reconcile.ignore', ignore, streams, shownText)
    const kept = streams.map((stream) => (isKept(stream) ? withExtra(stream) : stream))
    const dated = kept.flatMap((stream) => {
      if (stream.by !== 'day') return []
      return [ignore.includes(stream.name) && isCompared(stream) ? { ...stream, control: undefined } : stream]
    })
    this.all = [...kept.filter(({ by }) => by === 'list'), ...dated]
  }

  get byDay(): DayStream[] {
    return this.all.filter((stream): stream is DayStream => stream.by === 'day')
  }

  /** The report by date alone under some filters: the configured one, or one that has no table. */
  controlFor(filters: readonly Filter[]): DayStream {
    const name = JSON.stringify(filters)
    const known = this.controls.get(name)
    if (known !== undefined) return known
    const configured = this.byDay.find((stream) => isControl(stream) && JSON.stringify(stream.filters) === name)
    const control =
      configured ?? brandReport({ name: 'control_totals', dimensions: ['date'], filters: [...filters] as never })
    this.controls.set(name, control)
    return control
  }

  get(name: string): Stream | undefined {
    return this.all.find((stream) => stream.name === name)
  }

  /** The named streams, or all. A name that is not configured is refused. */
  named(names: readonly string[] = []): Stream[] {
    refuseUnknown('--stream', names, this.all)
    return this.all.filter(({ name }) => names.length === 0 || names.includes(name))
  }
}

function refuseUnknown(
  where: string,
  names: readonly string[],
  streams: readonly Stream[],
  shown: (text: string) => string = inQuotes,
): void {
  const known = streams.map((stream) => stream.name)
  for (const name of names) {
    if (known.includes(name)) continue
    throw new UsageError(`${where}: got ${shown(name)}; configured are: ${known.join(', ')}${didYouMean(name, known)}`)
  }
}

/** Names of brands, topics and tags from labels, in place of a list. Undefined if there are none. */
function labelsOf(
  labels: Config['labels'],
  stream: ExtraStream,
): ((column: string, id: string) => Value | undefined) | undefined {
  const nameOf = {
    brands: (id: string) => labelOf(labels.brands, id)?.name,
    topics: (id: string) => labelOf(labels.topics, id),
    tags: (id: string) => labelOf(labels.tags, id),
  }
  if (!(stream === 'brands' || stream === 'topics' || stream === 'tags')) return undefined
  return (column, id) => (column === 'name' ? nameOf[stream](id) : undefined)
}
