import type { Faults } from './faults.ts'
import { hashText } from './random.ts'

/** Adds unknown fields, malformed rows and repeated rows to an answer, always at the same rows. */
export function mangle(items: unknown[], faults: Faults): unknown[] {
  if (!faults.extra_fields && faults.malformed === 0 && faults.duplicate_rows === 0) return items
  const mangled: unknown[] = []
  for (const item of items as Record<string, unknown>[]) {
    const draw = share(item)
    let changed: unknown = item
    if (draw < faults.malformed) changed = broken(item, draw * 1e6)
    else if (faults.extra_fields) changed = { ...item, is_archived: false, sampling: { weight: 1 } }
    mangled.push(changed)
    if (share(item, 'twice') < faults.duplicate_rows) mangled.push(changed)
  }
  return mangled
}

/** A number from 0 up to 1 that depends on the row's identity, not on its place or its values. */
function share(item: Record<string, unknown>, salt = ''): number {
  const { brand, id, name, date, prompt, model, topic, tag, country_code, chat } = item
  return (
    hashText(JSON.stringify([salt, brand, id, name, date, prompt, model, topic, tag, country_code, chat])) /
    4_294_967_296
  )
}

function broken(item: Record<string, unknown>, draw: number): unknown {
  if (item.brand !== undefined) {
    const ways = [
      { ...item, mention_count: 'many' },
      { ...item, brand: null },
      { ...item, visibility: null },
      { ...item, date: '2026-02-30' },
      { ...item, position: 'first' },
    ]
    return ways[Math.floor(draw) % ways.length]
  }
  const ways = [{ ...item, id: 7, name: 7 }, { ...item, id: undefined, name: undefined }, 'not an object']
  return ways[Math.floor(draw) % ways.length]
}
