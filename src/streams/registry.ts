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

/** The names of the configured streams that are read by days. */
export function dayStreamNames(config: Config): string[] {
  return [...config.streams.filter((name) => BASE[name].by === 'day'), ...config.reports.map(({ name }) => name)]
}

/** The same stream, each row of which is parsed by JSON.parse and judged by zod. */
function withoutTemplates(stream: DayStream): DayStream {
  const plain = { ...stream }
  delete plain.familiar
  return plain
}

/** The configured streams, lists before dated ones; all of them, or those that were named. */
export function streamsOf(config: Config, named: readonly string[] = []): Stream[] {
  const reports = config.reports.map(brandReport)
  const all: Stream[] = [
    ...config.streams.map((name) => BASE[name]),
    ...(config.disabled.includes('template-parser') ? reports.map(withoutTemplates) : reports),
  ]
  for (const name of named) {
    if (!all.some((stream) => stream.name === name)) {
      const names = all.map((stream) => stream.name)
      throw new UsageError(
        `--stream: got ${shownText(name)}; configured are: ${names.join(', ')}${didYouMean(name, names)}`,
      )
    }
  }
  const chosen = named.length === 0 ? all : all.filter((stream) => named.includes(stream.name))
  return [...chosen.filter((stream) => stream.by === 'list'), ...chosen.filter((stream) => stream.by === 'day')]
}
