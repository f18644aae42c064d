import type { CreationKind } from '../ledger/creations.ts'

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

export type Identified = Pick<CreationRequest, 'kind' | 'text' | 'name' | 'country'>

export function idempotencyKey(item: Identified): string {
  return item.kind === 'prompt' ? JSON.stringify([item.text, item.country]) : (item.name ?? '')
}

export function isRepeated(wanted: readonly CreationRequest[], index: number): boolean {
  const { kind } = wanted[index]!
  const identity = idempotencyKey(wanted[index]!)
  return wanted.slice(0, index).some((other) => other.kind === kind && idempotencyKey(other) === identity)
}

export function requestOf(item: CreationRequest, topicId: string | undefined): Record<string, unknown> {
  const { kind, text, name, country: country_code, color, tags = [] } = item
  if (kind === 'prompt') return { text, country_code, tag_ids: tags.length > 0 ? tags : undefined, topic_id: topicId }
  return kind === 'topic' ? { name, country_code } : { name, color }
}
