import { byChannel } from '../warehouse/schema/catalogue.ts'
import type { Pack } from './relations.ts'
import { fill, parseTemplate, type Values } from './template.ts'

/* Two dashboards for Grafana: operations on the metrics, visibility on the views. */

type Texts<Name extends string> = Record<Name, string>

interface Panel extends Partial<Texts<'about' | 'type' | 'unit' | 'sql'>> {
  width?: number
  targets?: object[]
}

interface Dashboard extends Texts<'uid' | 'title' | 'description' | 'time' | 'refresh'> {
  source: Texts<'name' | 'label' | 'type'>
  variables: Texts<'name' | 'label' | 'query'>[]
  panels: Panel[]
}

export function grafanaFiles({ relations, channelViews, values }: Pack): Record<string, string> {
  const known = new Set(relations.map(({ name }) => name))
  return Object.fromEntries(
    ['operations', 'visibility'].map((name) => {
      const { parts = {}, ...rest } = parseTemplate<Dashboard & { parts?: Values }>(`grafana/${name}.yml`)
      const template = fill(rest, { ...values, ...fill(parts, values) })
      const reads = ({ sql = '' }: Panel) => [...sql.matchAll(/(?:from|join) "\w+"\.(\w+)/g)].map(([, view]) => view!)
      const panels = template.panels
        .map((panel) => (reads(panel).some((view) => channelViews.has(view)) ? byChannel(panel) : panel))
        .filter((panel) => reads(panel).every((view) => known.has(view)))
      return [`${name}.json`, `${JSON.stringify(dashboardOf({ ...template, panels }), null, 2)}\n`]
    }),
  )
}

function dashboardOf({ uid, title, description, time, refresh, source, variables, panels }: Dashboard) {
  const datasource = { type: source.type, uid: `\${${source.name}}` }
  let [x, y, row] = [0, 0, 0]
  const placed = panels.map(({ about, type = 'timeseries', unit, width: given, targets, sql, ...panel }, index) => {
    const [width, height] = type === 'stat' ? [6, 4] : [given ?? 12, 8]
    if (x + width > 24) [x, y, row] = [0, y + row, 0]
    const gridPos = { x, y, w: width, h: height }
    x += width
    row = Math.max(row, height)
    const format = type === 'table' ? 'table' : 'time_series'
    const asked = targets ?? [{ rawSql: sql, format, rawQuery: true, editorMode: 'code' }]
    return {
      ...{ id: index + 1, ...panel, type, description: about, datasource, gridPos },
      fieldConfig: { defaults: type === 'table' ? {} : { unit: unit ?? 'short' }, overrides: [] },
      options: type === 'timeseries' ? { tooltip: { mode: 'multi', sort: 'desc' } } : {},
      targets: asked.map((target, place) => ({ refId: String.fromCharCode(65 + place), datasource, ...target })),
    }
  })
  const choices = variables.map(({ query, ...variable }) => ({
    ...{ type: 'query', ...variable, datasource },
    query: source.type === 'prometheus' ? { query, refId: 'values' } : query,
    ...{ refresh: 2, multi: true, includeAll: true, current: { text: ['All'], value: ['$__all'] }, sort: 1 },
  }))
  const chosen = { type: 'datasource', name: source.name, label: source.label, query: source.type, refresh: 1, hide: 0 }
  return {
    ...{ uid, title, description, tags: ['visibility-sync'], schemaVersion: 39, version: 1, editable: true },
    ...{ timezone: 'utc', time: { from: time, to: 'now' }, refresh },
    templating: { list: [chosen, ...choices] },
    panels: placed,
  }
}
