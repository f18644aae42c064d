import { shownText } from '../core/config/describe-issue.ts'
import type { Config } from '../core/config/load.ts'
import { UsageError } from '../core/errors.ts'
import { didYouMean } from '../core/similar.ts'
import type { BaseStream } from '../core/vocabulary.ts'
import { brandReport } from './brand-report.ts'
import { chats } from './chats.ts'
import { domainClassifications } from './domain-classifications.ts'
import { projectProfile } from './project-profile.ts'
import { promptSuggestions, prompts } from './prompts.ts'
import type { DayStream, Stream } from './stream.ts'

const BASE: Record<BaseStream, Stream> = {
  project_profile: projectProfile,
  prompts,
  prompt_suggestions: promptSuggestions,
  domain_classifications: domainClassifications,
  chats,
}

/** The configured streams by name, without making them: their schemas take longer than reading a configuration. */
export function streamKinds(config: Config): Pick<Stream, 'name' | 'by'>[] {
  return [
    ...config.streams.map((name) => ({ name, by: BASE[name].by })),
    ...config.reports.map(({ name }) => ({ name, by: 'day' as const })),
  ]
}

/** The configured streams. They are made once and used as long as the process works for this configuration. */
export class StreamSet {
  /** Lists before dated ones. */
  readonly all: readonly Stream[]

  constructor(config: Config) {
    const reports = config.reports.map(brandReport)
    const streams: Stream[] = [
      ...config.streams.map((name) => BASE[name]),
      ...(config.disabled.includes('template-parser') ? reports.map(withoutTemplates) : reports),
    ]
    this.all = [...streams.filter(({ by }) => by === 'list'), ...streams.filter(({ by }) => by === 'day')]
  }

  get(name: string): Stream | undefined {
    return this.all.find((stream) => stream.name === name)
  }

  /** Those that were named, or all; a name that is not configured is refused. */
  named(names: readonly string[] = []): Stream[] {
    for (const name of names) {
      if (this.get(name) !== undefined) continue
      const known = this.all.map((stream) => stream.name)
      throw new UsageError(
        `--stream: got ${shownText(name)}; configured are: ${known.join(', ')}${didYouMean(name, known)}`,
      )
    }
    return this.all.filter(({ name }) => names.length === 0 || names.includes(name))
  }

  /** The names of those that are read by days. */
  get dayNames(): string[] {
    return this.all.flatMap(({ by, name }) => (by === 'day' ? [name] : []))
  }
}

/** The same stream, each row of which is parsed by JSON.parse and judged by zod. */
function withoutTemplates(stream: DayStream): DayStream {
  const plain = { ...stream }
  delete plain.template
  return plain
}
