import type { Dashboard, Dashcard, Metabase } from './api.ts'
import { dashboardParameters, mappingsOf } from './cards.ts'
import type { Filter } from './questions.ts'

const DASHBOARD = 'AI visibility at a glance'
// Metabase's grid is 24 columns wide: two cards side by side.
const WIDTH = 12
const HEIGHT = 7

export interface Placed {
  id: number
  filters: Filter[]
}

/** Makes the dashboard, or adds to it what it lacks. What people added, moved or filtered by stays as it is. */
export async function ensureDashboard(
  metabase: Metabase,
  collection: number,
  cards: readonly Placed[],
): Promise<{ id: number; made: boolean }> {
  const known = (await metabase.dashboards(collection)).find(({ name }) => name === DASHBOARD)
  const id = known?.id ?? (await metabase.createDashboard(DASHBOARD, collection)).id
  const before = await metabase.dashboard(id)
  const after = completed(before, cards)
  if (JSON.stringify(after) !== JSON.stringify(before)) await metabase.updateDashboard(id, after)
  return { id, made: known === undefined }
}

/** The whole dashboard, since whatever an update leaves out is deleted: cards, tabs and filters. */
function completed(dashboard: Dashboard, cards: readonly Placed[]): Dashboard {
  const taken = new Set(dashboard.parameters.map(({ slug }) => slug))
  const parameters = [...dashboard.parameters, ...dashboardParameters().filter(({ slug }) => !taken.has(slug))]
  const ids = new Set(parameters.map(({ id }) => id))
  const ofCard = new Map(cards.map((card) => [card.id, card]))
  const dashcards = dashboard.dashcards.map((dashcard) => {
    const card = ofCard.get(dashcard.card_id ?? 0)
    return card === undefined ? dashcard : withFilters(dashcard, card, ids)
  })
  const there = new Set(dashcards.map(({ card_id }) => card_id))
  const missing = cards.filter(({ id }) => !there.has(id))
  const tab = tabFor(dashboard, ofCard)
  const below = Math.max(
    0,
    ...dashcards
      .filter((card) => tab === undefined || card.dashboard_tab_id === tab)
      .map(({ row, size_y }) => row + size_y),
  )
  const added = missing.map((card, index) =>
    withFilters(
      {
        id: -(index + 1),
        card_id: card.id,
        row: below + Math.floor(index / 2) * HEIGHT,
        col: (index % 2) * WIDTH,
        size_x: WIDTH,
        size_y: HEIGHT,
        ...(tab === undefined ? {} : { dashboard_tab_id: tab }),
        visualization_settings: {},
      },
      card,
      ids,
    ),
  )
  return { dashcards: [...dashcards, ...added], tabs: dashboard.tabs, parameters }
}

/** Every card of a dashboard with tabs is on one: new ones go where ours are, or to the first. */
function tabFor(dashboard: Dashboard, ours: ReadonlyMap<number, Placed>): number | undefined {
  const mine = dashboard.dashcards.find(({ card_id }) => ours.has(card_id ?? 0))
  return dashboard.tabs.length === 0 ? undefined : (mine?.dashboard_tab_id ?? dashboard.tabs[0]!.id)
}

function withFilters(dashcard: Dashcard, card: Placed, parameters: ReadonlySet<string>): Dashcard {
  const mappings = dashcard.parameter_mappings ?? []
  const mapped = new Set(mappings.map(({ parameter_id }) => parameter_id))
  const wanted = mappingsOf(card.id, card.filters).filter(
    ({ parameter_id }) => parameters.has(parameter_id) && !mapped.has(parameter_id),
  )
  return wanted.length === 0 ? dashcard : { ...dashcard, parameter_mappings: [...mappings, ...wanted] }
}
