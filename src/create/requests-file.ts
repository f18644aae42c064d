import { readFileSync } from 'node:fs'
import { extname } from 'node:path'
import { parse } from 'csv-parse/sync'
import { messageOf, UsageError } from '../core/errors.ts'
import { clip, didYouMean } from '../core/text.ts'
import type { CreationKind } from '../ledger/creations.ts'
import { createClassificationRequest, createPromptRequest, createTopicRequest } from '../source/requests.ts'
import { type CreationRequest, countryCode, requestOf } from './creation-request.ts'

/* Files of things to create: CSV (RFC 4180) or JSON lines. All of it is checked before anything is sent. */

export const NAMES: Record<string, keyof CreationRequest> = {
  text: 'text',
  prompt: 'text',
  name: 'name',
  country: 'country',
  country_code: 'country',
  color: 'color',
  colour: 'color',
  tag: 'tags',
  tags: 'tags',
  tag_ids: 'tags',
  topic: 'topic',
  topic_id: 'topic',
}
const SCHEMAS = {
  prompt: createPromptRequest,
  topic: createTopicRequest,
  'domain-classification': createClassificationRequest,
  'url-classification': createClassificationRequest,
}
const MOST_SHOWN = 20

export function readRequests(file: string, kind: CreationKind): CreationRequest[] {
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(readFileSync(file))
  } catch (cause) {
    throw new UsageError(`--from: ${file} cannot be read as UTF-8 text (${messageOf(cause)})`)
  }
  const json = /^\.(jsonl|ndjson|json)$/i.test(extname(file)) || text.trimStart().startsWith('{')
  const records = json ? jsonRecords(text, file) : csvRecords(text, file)
  if (records.length === 0) throw new UsageError(`--from: ${file} has no lines`)
  const requests = records.map((record) => requestFrom(kind, record))
  const problems = requests.flatMap(({ item, problems: own }) => own.map((problem) => `line ${item.line}: ${problem}`))
  const more = problems.length > MOST_SHOWN ? [`… and ${problems.length - MOST_SHOWN} more`] : []
  if (problems.length > 0)
    throw new UsageError([`${file}: nothing was sent`, ...problems.slice(0, MOST_SHOWN), ...more].join('\n'))
  return requests.map(({ item }) => item)
}

export function problemsOf(item: CreationRequest): string[] {
  const { error } = SCHEMAS[item.kind].safeParse(requestOf(item, undefined), { reportInput: true })
  const problems = (error?.issues ?? []).map(({ path, message, input }) => {
    const field = [NAMES[String(path[0])] ?? path[0], ...path.slice(1)].join('.')
    const hint = input === 'UK' ? '; did you mean "GB"?' : ''
    return `${field}: got ${clip(JSON.stringify(input) ?? 'nothing', 60)}; allowed: ${message}${hint}`
  })
  const { topic } = item
  if (topic !== undefined && !topic.startsWith('to_') && !createTopicRequest.safeParse({ name: topic }).success)
    problems.push(
      `topic: got ${clip(JSON.stringify(topic), 60)}; allowed: an id (to_…), or a name of 1 to 64 characters`,
    )
  return problems
}

interface Line {
  line: number
  fields: Record<string, unknown>
}

function csvRecords(text: string, file: string): Line[] {
  try {
    const parsed = parse(text, {
      bom: true,
      columns: (header: string[]) => header.map((name) => name.trim().toLowerCase()),
      delimiter: delimiterOf(text),
      info: true,
      skip_empty_lines: true,
    }) as unknown as { record: Record<string, string>; info: { lines: number } }[]
    // The parser counts to the end of a record; one with newlines inside began further up.
    return parsed.map(({ record, info }) => {
      const inside = Object.values(record).reduce((sum, value) => sum + (value.match(/\r\n|\n|\r/g)?.length ?? 0), 0)
      return { line: info.lines - inside, fields: record }
    })
  } catch (cause) {
    throw new UsageError(`--from: ${file} is not valid CSV: ${clip(messageOf(cause))}`)
  }
}

function delimiterOf(text: string): string {
  const header = /^\uFEFF?([^\r\n]*)/.exec(text)?.[1] ?? ''
  const plain = header.replaceAll(/"(?:[^"]|"")*"/g, '')
  const counts = [',', ';', '\t'].map((mark) => ({ mark, count: plain.split(mark).length }))
  return counts.sort((a, b) => b.count - a.count)[0]!.mark
}

function jsonRecords(text: string, file: string): Line[] {
  return text
    .replace(/^\uFEFF/, '')
    .split('\n')
    .flatMap((content, index) => {
      if (content.trim() === '') return []
      let fields: unknown
      try {
        fields = JSON.parse(content)
      } catch (cause) {
        throw new UsageError(`--from: ${file}, line ${index + 1}: not JSON (${clip(messageOf(cause), 80)})`)
      }
      if (typeof fields !== 'object' || fields === null || Array.isArray(fields))
        throw new UsageError(`--from: ${file}, line ${index + 1}: must be an object such as {"text": "…"}`)
      return [{ line: index + 1, fields: fields as Line['fields'] }]
    })
}

function requestFrom(kind: CreationKind, { line, fields }: Line): { item: CreationRequest; problems: string[] } {
  const item: CreationRequest = { line, kind }
  const allowed = Object.keys(SCHEMAS[kind].shape).flatMap((name) => NAMES[name] ?? [])
  const problems: string[] = []
  for (const [name, value] of Object.entries(fields)) {
    const field = NAMES[name]
    if (field === undefined || !allowed.includes(field))
      problems.push(`${clip(name, 40)}: unknown; allowed: ${allowed.join(', ')}${didYouMean(name, allowed)}`)
    else if (value === '' || value === null || value === undefined) continue
    else if (field === 'tags') item.tags = tagsOf(value)
    else if (typeof value !== 'string') problems.push(`${name}: must be a text`)
    else Object.assign(item, { [field]: field === 'country' ? countryCode(value) : value })
  }
  return { item, problems: problems.length > 0 ? problems : problemsOf(item) }
}

function tagsOf(value: unknown): string[] {
  const list = Array.isArray(value) ? value.map(String) : String(value).split(/[|\s]+/)
  return list.filter((tag) => tag !== '')
}
