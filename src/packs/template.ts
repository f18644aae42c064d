import { readFileSync } from 'node:fs'
import { isIPv6 } from 'node:net'
import { escapeLiteral } from 'pg'
import { Document, parse, visit } from 'yaml'
import type { Config } from '../core/config/load.ts'
import { packageFile, packageVersion } from '../core/package-files.ts'
import { secondsOf } from '../core/text.ts'
import type { BiView } from '../core/vocabulary.ts'
import { reportBy } from '../warehouse/schema/views.ts'

/* The hand-written parts of packs are in templates/, with placeholders such as <<schema>>. */

export type Values = Record<string, unknown>

// YAML 1.1 allows none of these, or takes them for the end of a line.
const UNPRINTABLE = /[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]/g

function escapeUnprintable(text: string): string {
  return text.replaceAll(UNPRINTABLE, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

/** As YAML and PromQL take it. */
function quotedText(text: string): string {
  return escapeUnprintable(JSON.stringify(text))
}

/** A pattern of PromQL that matches these values and nothing else. */
function promPattern(values: readonly string[]): string {
  return quotedText(values.map((value) => value.replaceAll(/[\\^$.|?*+()[\]{}]/g, '\\$&')).join('|'))
}

export function valuesOf(config: Config, projects: readonly string[]): Values {
  const { host, port, max_staleness } = config.serve
  const stale_seconds = secondsOf(max_staleness)
  const stale_hours = Math.ceil(stale_seconds / 3600)
  return {
    version: packageVersion(),
    schema: config.warehouse.schema,
    serve: quotedText(`${isIPv6(host) ? `[${host}]` : host}:${port}`),
    stale_seconds,
    stale_hours,
    error_hours: Math.max(72, 2 * stale_hours),
    projects,
    in_projects: projects.length === 0 ? 'true' : `project_id in (${projects.map(escapeLiteral).join(', ')})`,
    of_projects: projects.length === 0 ? '' : `{project=~${promPattern(projects)}}`,
    // The report that the metrics of dbt are computed from, if one is configured.
    daily: reportBy(config.reports, ['date'])?.name ?? '',
  }
}

/** Replaces placeholders in all texts. A text that is nothing but a placeholder becomes the value itself, of any type. */
export function fill<T>(template: T, values: Values): T {
  const valueOf = (name: string) => {
    if (values[name] === undefined) throw new Error(`the template has an unknown placeholder: ${name}`)
    return values[name]
  }
  const filled = (node: unknown): unknown => {
    if (Array.isArray(node)) return node.map(filled)
    if (typeof node === 'object' && node !== null)
      return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, filled(value)]))
    if (typeof node !== 'string') return node
    const whole = /^<<(\w+)>>$/.exec(node)
    if (whole !== null) return valueOf(whole[1]!)
    return node.replaceAll(/<<(\w+)>>/g, (_, name: string) => {
      const value = valueOf(name)
      return typeof value === 'string' ? value : JSON.stringify(value)
    })
  }
  return filled(template) as T
}

export function readTemplate(path: string): string {
  return readFileSync(packageFile(`templates/${path}`), 'utf8')
}

export function parseTemplate<T>(path: string): T {
  return parse(readTemplate(path)) as T
}

/** Python reads YAML 1.1, in which dates, yes and no need quotes. */
export function yamlFile(content: unknown): string {
  const document = new Document(content, { aliasDuplicateObjects: false, version: '1.1' })
  visit(document, {
    Scalar(_, scalar) {
      if (typeof scalar.value === 'string' && scalar.value.search(UNPRINTABLE) >= 0) scalar.type = 'QUOTE_DOUBLE'
    },
  })
  const text = escapeUnprintable(document.toString({ lineWidth: 120 }))
  return `# Written by "visibility-sync pack" for your configuration. The next run with --force overwrites changes.\n${text}`
}

interface Ratio {
  name: string
  label: string
  about: string
  view: BiView
  numerator: string
  denominator: string
  share: boolean
}

export function readRatios(): Ratio[] {
  return parseTemplate<Ratio[]>('ratios.yml')
}
