import { TAGS } from './names.ts'
import type { Brand, Project, World } from './world.ts'

export const EXTRA_OPERATIONS = [
  'GET /projects',
  'GET /brands',
  'GET /topics',
  'GET /tags',
  'GET /models',
  'GET /model-channels',
  'GET /classifications/urls',
  'POST /reports/domains',
  'POST /reports/urls',
  'GET /chats/{id}/content',
] as const
export type ExtraOperation = (typeof EXTRA_OPERATIONS)[number]

export function isExtra(operation: string): boolean {
  return EXTRA_OPERATIONS.some((extra) => extra === operation)
}

/** A report is asked for by POST and creates nothing. */
export function isCreation(method: string, path: string): boolean {
  return method === 'POST' && !path.includes('/reports/')
}

export function brandDomain({ name }: Brand): string {
  const word = name
    .normalize('NFD')
    .replaceAll(/[^A-Za-z0-9]+/g, '-')
    .toLowerCase()
  return `${word.replaceAll(/^-+|-+$/g, '') || 'brand'}.example`
}

export function projectList(world: World): unknown[] {
  const created_at = '2025-11-03T09:00:00Z'
  return world.projects.map(({ id, name, status = 'ACTIVE' }) => ({ id, name, status, created_at }))
}

/** Undefined if the operation is no list of a project. */
export function extraItems(operation: string, project: Project, world: World): unknown[] | undefined {
  switch (operation as ExtraOperation) {
    case 'GET /brands':
      return project.brands.map((brand, index) => ({
        id: brand.id,
        name: brand.name,
        domains: [brandDomain(brand)],
        is_own: index === 0,
        aliases: brand.aliases ?? [],
        ...(brand.regex !== undefined && { regex: brand.regex }),
      }))
    case 'GET /topics':
      return project.topics
    case 'GET /tags':
      return project.tags.map((id, index) => ({ id, name: TAGS[index] }))
    case 'GET /models':
      return world.models.map((id) => ({ id, name: id.replace('-', ' ') }))
    case 'GET /model-channels': {
      const channels = new Map(world.models.map((model) => [`channel-${model.split('-')[0]}`, model]))
      for (const [channel, model] of world.movedChannels) channels.set(channel, model)
      return [...channels].map(([id, model]) => ({
        id,
        name: id.replace('channel-', 'Channel '),
        model: { id: model },
      }))
    }
    case 'GET /classifications/urls':
      return project.urlClassifications
    default:
      return undefined
  }
}
