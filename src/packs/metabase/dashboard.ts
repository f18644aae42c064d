import { fill } from '../template.ts'
import type { Dashboard, Dashcard, Metabase } from './api.ts'
import { readMetabaseTemplate } from './cards.ts'

// Metabase's grid is 24 columns wide: two cards side by side.
const WIDTH = 12
const HEIGHT = 7

export interface Placed {
  id: number
  filters: string[]
}

/** By the name of a filter, the model and the field that list its values. */
export type Lists = Record<string, { card: number; field: number }>

/** Makes the dashboard, or adds to it what it lacks. What people added, moved or filtered by stays as it is. */
export async function ensureDashboard(
  metabase: Metabase,
  { name, collection, lists }: { name: string; collection: number; lists: Lists },
  cards: readonly Placed[],
): Promise<{ id: number; made: boolean }> {
  const known = (await metabase.dashboards(collection)).find((dashboard) => dashboard.name === name)
  const id = known?.id ?? (await metabase.createDashboard(name, collection)).id
  const before = await metabase.dashboard(id)
  const after = completed(before, cards, lists)
  if (JSON.stringify(after) !== JSON.stringify(before)) await metabase.updateDashboard(id, after)
  return { id, made: known === undefined }
}

/** The whole dashboard, since an update deletes the cards, tabs and filters that it leaves out. */
function completed(dashboard: Dashboard, cards: readonly Placed[], lists: Lists): Dashboard {
  const { filters, dashboard_parameter, values } = readMetabaseTemplate()
  const taken = new Set(dashboard.parameters.map(({ slug }) => slug))
  const ours = Object.entries(filters).map(([name, filter]) => ({
    ...fill(dashboard_parameter, { name, ...filter }),
    ...(filter.default !== undefined && { default: filter.default }),
    ...(lists[name] !== undefined && fill(values, lists[name])),
  }))
  const parameters = [...dashboard.parameters, ...ours.filter(({ slug }) => !taken.has(slug))]
  const ids = new Set(parameters.map(({ id }) => id))
  const ofCard = new Map(cards.map((card) => [card.id, card]))
  const dashcards = dashboard.dashcards.map((dashcard) => {
    const card = ofCard.get(dashcard.card_id ?? 0)
    return card === undefined ? dashcard : withFilters(dashcard, card, ids)
  })
  const there = new Set(dashcards.map(({ card_id }) => card_id))
  const tab = tabFor(dashboard, ofCard)
  const onTab = dashcards.filter((card) => tab === undefined || card.dashboard_tab_id === tab)
  const below = Math.max(0, ...onTab.map(({ row, size_y }) => row + size_y))
  const added = cards
    .filter(({ id }) => !there.has(id))
    .map((card, index) => {
      const place = { row: below + Math.floor(index / 2) * HEIGHT, col: (index % 2) * WIDTH }
      const dashcard = { id: -(index + 1), card_id: card.id, ...place, size_x: WIDTH, size_y: HEIGHT }
      const ofTab = tab === undefined ? {} : { dashboard_tab_id: tab }
      return withFilters({ ...dashcard, ...ofTab, visualization_settings: {} }, card, ids)
    })
  return { dashcards: [...dashcards, ...added], tabs: dashboard.tabs, parameters }
}

/** Every card of a dashboard with tabs is on one: new cards go where ours are, or to the first tab. */
function tabFor(dashboard: Dashboard, ours: ReadonlyMap<number, Placed>): number | undefined {
  const mine = dashboard.dashcards.find(({ card_id }) => ours.has(card_id ?? 0))
  return dashboard.tabs.length === 0 ? undefined : (mine?.dashboard_tab_id ?? dashboard.tabs[0]!.id)
}

function withFilters(dashcard: Dashcard, card: Placed, parameters: ReadonlySet<string>): Dashcard {
  const mappings = dashcard.parameter_mappings ?? []
  const mapped = new Set(mappings.map(({ parameter_id }) => parameter_id))
  const wanted = card.filters
    .map((name) => ({
      parameter_id: `visibility-sync-${name}`,
      card_id: card.id,
      target: ['dimension', ['template-tag', name]],
    }))
    .filter(({ parameter_id }) => parameters.has(parameter_id) && !mapped.has(parameter_id))
  return wanted.length === 0 ? dashcard : { ...dashcard, parameter_mappings: [...mappings, ...wanted] }
}
