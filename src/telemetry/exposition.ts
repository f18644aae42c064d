import type { Registry } from 'prom-client'

/* The text format of Prometheus, for metrics that outlive the process that counted them. */

export interface Sample {
  /** As it stands before the value: name{label="value"}. */
  key: string
  value: number
}

export interface Family {
  name: string
  help: string
  type: string
  samples: Sample[]
}

export async function familiesOf(registry: Registry): Promise<Family[]> {
  const metrics = await registry.getMetricsAsJSON()
  return metrics.map(({ name, help, type, values }) => ({
    name,
    help,
    type: String(type),
    samples: values.map((sample) => ({
      key: keyOf('metricName' in sample ? String(sample.metricName) : name, sample.labels),
      value: sample.value,
    })),
  }))
}

/** What is only ever added up, over all processes. */
export function isSummed({ type }: Family): boolean {
  return type === 'counter' || type === 'histogram'
}

/** The same with totals in the place of what one process counted, also for what only others counted. */
export function withTotals(families: readonly Family[], totals: ReadonlyMap<string, number>): Family[] {
  return families.map((family) => {
    if (!isSummed(family)) return family
    const own = new RegExp(`^${family.name}${family.type === 'histogram' ? '_(?:bucket|sum|count)' : ''}(?:\\{|$)`)
    const samples = [...totals].flatMap(([key, value]) => (own.test(key) ? [{ key, value }] : []))
    return { ...family, samples: samples.sort(inOrder) }
  })
}

/** Families without a sample are left out: their type alone says nothing. */
export function renderFamilies(families: readonly Family[]): string {
  return families
    .filter(({ samples }) => samples.length > 0)
    .map(({ name, help, type, samples }) =>
      [
        `# HELP ${name} ${help}`,
        `# TYPE ${name} ${type}`,
        ...samples.map(({ key, value }) => `${key} ${shown(value)}`),
        '',
      ].join('\n'),
    )
    .join('\n')
}

function keyOf(name: string, labels: Partial<Record<string, string | number>>): string {
  const pairs = Object.entries(labels).map(([label, value]) => `${label}="${escaped(String(value))}"`)
  return pairs.length === 0 ? name : `${name}{${pairs.join(',')}}`
}

function escaped(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll('"', '\\"')
}

function shown(value: number): string {
  if (value === Number.POSITIVE_INFINITY) return '+Inf'
  return value === Number.NEGATIVE_INFINITY ? '-Inf' : String(value)
}

const BOUND = /le="([^"]*)",?/

/** Buckets by their bounds, as the format wants them. */
function inOrder(a: Sample, b: Sample): number {
  const [one, other] = [a.key.replace(BOUND, ''), b.key.replace(BOUND, '')]
  if (one !== other) return one < other ? -1 : 1
  return boundOf(a.key) - boundOf(b.key)
}

function boundOf(key: string): number {
  const bound = BOUND.exec(key)?.[1]
  return bound === undefined || bound === '+Inf' ? Number.MAX_VALUE : Number(bound)
}
