import { yamlFile } from './yaml.ts'

/* Alert rules on the metrics, scraped from `serve` or pushed by commands that end, and what promtool checks them with. */

interface Rule {
  alert: string
  expr: string
  for: string
  severity: 'warning' | 'critical'
  summary: string
  action: string
  /** Series that make it fire, and where it does not. */
  fires: {
    series: Record<string, string>
    at: string
    labels?: Record<string, string>
    /** What the expression gives there, if that is not what the series has. */
    value?: string
  }
  quiet: Record<string, string>
}

const STREAM = '{project="or_1",stream="chats"}'
const P = 'visibility_sync'

export const RULES: readonly Rule[] = [
  {
    alert: 'VisibilitySyncDown',
    expr: 'up{job="visibility-sync"} == 0',
    for: '5m',
    severity: 'critical',
    summary: 'visibility-sync does not answer.',
    action: 'Look at its log and restart it. The next run makes good what was missed.',
    fires: { series: { 'up{job="visibility-sync"}': '0x60' }, at: '10m', labels: { job: 'visibility-sync' } },
    quiet: { 'up{job="visibility-sync"}': '1x60' },
  },
  {
    alert: 'VisibilitySyncDatabaseDown',
    expr: `${P}_database_up == 0`,
    for: '5m',
    severity: 'critical',
    summary: 'The warehouse does not answer.',
    action: 'Look at the database. Syncs wait for it, and the missed one is made good.',
    fires: { series: { [`${P}_database_up`]: '0x60' }, at: '10m' },
    quiet: { [`${P}_database_up`]: '1x60' },
  },
  {
    alert: 'VisibilitySyncRunFailed',
    expr: `sum by (command) (increase(${P}_runs_total{outcome="failed"}[2h])) > 0`,
    for: '0m',
    severity: 'critical',
    summary: 'A {{ $labels.command }} failed in the last two hours.',
    action: '"visibility-sync status" says why.',
    fires: {
      series: { [`${P}_runs_total{command="sync",outcome="failed"}`]: '0x30 1x90' },
      at: '60m',
      labels: { command: 'sync' },
    },
    quiet: { [`${P}_runs_total{command="sync",outcome="failed"}`]: '3x120' },
  },
  {
    alert: 'VisibilitySyncRunsPartial',
    expr: `sum by (command) (increase(${P}_runs_total{outcome="partial"}[6h])) >= 3`,
    for: '0m',
    severity: 'warning',
    summary: 'Three runs of {{ $labels.command }} in six hours left something undone.',
    action: '"visibility-sync status" and "visibility-sync quarantine list" say what.',
    fires: {
      series: { [`${P}_runs_total{command="sync",outcome="partial"}`]: '0+0.05x400' },
      at: '120m',
      labels: { command: 'sync' },
    },
    quiet: { [`${P}_runs_total{command="sync",outcome="partial"}`]: '0x10 1x400' },
  },
  {
    alert: 'VisibilitySyncNoSuccess',
    // The clock of promtool begins at 0, so times of the past are negative there.
    expr: `time() - max(${P}_last_success_timestamp_seconds{command="sync"}) > 26 * 3600`,
    for: '15m',
    severity: 'critical',
    summary: 'No sync was complete for {{ $value | humanizeDuration }}.',
    action: '"visibility-sync status" says how the last runs ended.',
    fires: {
      series: { [`${P}_last_success_timestamp_seconds{command="sync"}`]: '-98200x60' },
      at: '30m',
      value: '100000',
    },
    quiet: { [`${P}_last_success_timestamp_seconds{command="sync"}`]: '-3600x60' },
  },
  {
    alert: 'VisibilitySyncStale',
    expr: `time() - max by (project, stream) (${P}_last_read_timestamp_seconds) > 26 * 3600`,
    for: '15m',
    severity: 'warning',
    summary: '{{ $labels.stream }} of {{ $labels.project }} was last read {{ $value | humanizeDuration }} ago.',
    action: 'Look at the last runs: "visibility-sync status".',
    fires: {
      series: { [`${P}_last_read_timestamp_seconds${STREAM}`]: '-98200x60' },
      at: '30m',
      labels: { project: 'or_1', stream: 'chats' },
      value: '100000',
    },
    quiet: { [`${P}_last_read_timestamp_seconds${STREAM}`]: '-4000x60' },
  },
  {
    alert: 'VisibilitySyncMissingDays',
    expr: `max by (project, stream) (${P}_missing_dates) > 0`,
    for: '6h',
    severity: 'warning',
    summary: '{{ $value }} days of {{ $labels.stream }} of {{ $labels.project }} were never read.',
    action: 'Runs fill gaps by themselves. If one stays, "visibility-sync plan" shows the windows that are left.',
    fires: {
      series: { [`${P}_missing_dates${STREAM}`]: '2x500' },
      at: '7h',
      labels: { project: 'or_1', stream: 'chats' },
    },
    quiet: { [`${P}_missing_dates${STREAM}`]: '2x100 0x400' },
  },
  {
    alert: 'VisibilitySyncHeldDays',
    expr: `max by (project, stream) (${P}_held_dates) > 0`,
    for: '15m',
    severity: 'warning',
    summary: '{{ $value }} days of {{ $labels.stream }} of {{ $labels.project }} are held for review.',
    action:
      'More than half of their rows would vanish. If that is right: "visibility-sync backfill --accept-deletes" for the range.',
    fires: {
      series: { [`${P}_held_dates${STREAM}`]: '1x60' },
      at: '30m',
      labels: { project: 'or_1', stream: 'chats' },
    },
    quiet: { [`${P}_held_dates${STREAM}`]: '0x60' },
  },
  {
    alert: 'VisibilitySyncQuarantine',
    expr: `max by (project, stream) (${P}_quarantined_rows) > 0`,
    for: '1h',
    severity: 'warning',
    summary: '{{ $value }} rows of {{ $labels.stream }} of {{ $labels.project }} failed validation.',
    action: '"visibility-sync quarantine list" shows why.',
    fires: {
      series: { [`${P}_quarantined_rows${STREAM}`]: '4x120' },
      at: '90m',
      labels: { project: 'or_1', stream: 'chats' },
    },
    quiet: { [`${P}_quarantined_rows${STREAM}`]: '0x120' },
  },
  {
    alert: 'VisibilitySyncQueueStuck',
    expr: `${P}_queue_oldest_seconds > 3600`,
    for: '15m',
    severity: 'warning',
    summary: 'A window has waited in the queue for {{ $value | humanizeDuration }}.',
    action: 'Look at the workers: "visibility-sync status" lists them.',
    fires: { series: { [`${P}_queue_oldest_seconds`]: '5000x60' }, at: '30m' },
    quiet: { [`${P}_queue_oldest_seconds`]: '60x60' },
  },
  {
    alert: 'VisibilitySyncGaugesOld',
    expr: `${P}_ledger_age_seconds > 900`,
    for: '5m',
    severity: 'warning',
    summary: 'The gauges of streams and queue are {{ $value | humanizeDuration }} old.',
    action: 'The ledger could not be read: look at the database.',
    fires: { series: { [`${P}_ledger_age_seconds`]: '1000x60' }, at: '10m' },
    quiet: { [`${P}_ledger_age_seconds`]: '5x60' },
  },
]

export function prometheusFiles(): Record<string, string> {
  return {
    'packs/prometheus/alerts.yml': yamlFile({
      groups: [{ name: 'visibility-sync', rules: RULES.map(ruleOf) }],
    }),
    'packs/prometheus/alerts.test.yml': yamlFile({
      rule_files: ['alerts.yml'],
      evaluation_interval: '1m',
      tests: RULES.flatMap((rule) => [
        test(rule, rule.fires.series, rule.fires.at, [
          {
            exp_labels: { severity: rule.severity, ...rule.fires.labels },
            exp_annotations: annotationsOf(rule),
          },
        ]),
        test(rule, rule.quiet, rule.fires.at, []),
      ]),
    }),
    'packs/prometheus/prometheus.yml': yamlFile({
      global: { scrape_interval: '30s', evaluation_interval: '30s' },
      rule_files: ['alerts.yml'],
      scrape_configs: [{ job_name: 'visibility-sync', static_configs: [{ targets: ['127.0.0.1:8080'] }] }],
    }),
  }
}

function ruleOf(rule: Rule): object {
  return {
    alert: rule.alert,
    expr: rule.expr,
    for: rule.for,
    labels: { severity: rule.severity },
    annotations: { summary: rule.summary, action: rule.action },
  }
}

/** The texts as they read when the rule fires. */
function annotationsOf({ summary, action, fires }: Rule): object {
  const value = fires.value ?? Object.values(fires.series)[0]!.split('x')[0]!
  const filled = summary
    .replaceAll(/\{\{ \$labels\.(\w+) \}\}/g, (_, name: string) => fires.labels?.[name] ?? '')
    .replaceAll('{{ $value | humanizeDuration }}', duration(Number(value)))
    .replaceAll('{{ $value }}', value)
  return { summary: filled, action }
}

/** As Prometheus writes durations. */
function duration(seconds: number): string {
  const parts = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor(seconds / 3600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'm'],
    [seconds % 60, 's'],
  ] as const
  const first = parts.findIndex(([number]) => number > 0)
  return parts
    .slice(first)
    .map(([number, unit]) => `${number}${unit}`)
    .join(' ')
}

function test(rule: Rule, series: Record<string, string>, at: string, alerts: object[]): object {
  return {
    name: `${rule.alert} ${alerts.length > 0 ? 'fires' : 'stays quiet'}`,
    interval: '1m',
    input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
    alert_rule_test: [{ eval_time: at, alertname: rule.alert, exp_alerts: alerts }],
  }
}
