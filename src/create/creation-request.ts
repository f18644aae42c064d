import type { CreationKind } from '../ledger/creations.ts'

/** One thing to create: fields of its kind, and the line of the file it came from. */
export interface CreationRequest {
  line: number
  kind: CreationKind
  text?: string | undefined
  name?: string | undefined
  country?: string | undefined
  color?: string | undefined
  tags?: string[] | undefined
  /** A topic's id, or its name. */
  topic?: string | undefined
}

/** A code of two letters, as the service writes it. */
export function countryCode(text: string): string {
  return text.trim().toUpperCase()
}

export function idempotencyKey(wish: Pick<CreationRequest, 'kind' | 'text' | 'name' | 'country'>): string {
  return wish.kind === 'prompt' ? JSON.stringify([wish.text, wish.country]) : (wish.name ?? '')
}

export function isRepeated(wishes: readonly CreationRequest[], index: number): boolean {
  const { kind } = wishes[index]!
  const identity = idempotencyKey(wishes[index]!)
  return wishes.slice(0, index).some((other) => other.kind === kind && idempotencyKey(other) === identity)
}

export function requestOf(wish: CreationRequest, topicId: string | undefined): Record<string, unknown> {
  const given = (fields: Record<string, unknown>) =>
    Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined))
  if (wish.kind === 'prompt') {
    const tags = wish.tags !== undefined && wish.tags.length > 0 ? wish.tags : undefined
    return given({ text: wish.text, country_code: wish.country, tag_ids: tags, topic_id: topicId })
  }
  if (wish.kind === 'topic') return given({ name: wish.name, country_code: wish.country })
  return given({ name: wish.name, color: wish.color })
}
