/* The words from which the synthetic world is made. */

export const BRANDS = 'Fernweh|Stridewell|Kamo Running|Vélocité|Nordlauf|Pace & Co|Tarka|Hillbound'.split('|')

/** Names that break careless loaders: quotes, tabs, line breaks, backslashes, commas, other scripts, combining marks. */
export const AWKWARD_BRANDS =
  'O\'Neill "Pro"|Tab\there|Back\\slash\\N|Müller, Söhne; & Co|東京ランナー|Бегун 🏃|line\nbreak|عداء'.split('|')

export const TOPICS = 'Trail running|Marathon shoes|Beginners|Recovery|Sustainability|Winter running'.split('|')
export const TAGS = ['Branded', 'Non-branded', 'Awareness', 'Consideration', 'Purchase']
export const WORLD_COUNTRIES = ['DE', 'US', 'GB', 'FR', 'JP']
export const WORLD_MODELS =
  'famA-scraper|famD-4o-search|famC-ai-overview-scraper|famB-sonar|famF-sonnet-4|famE-2.5-flash'.split('|')

const OPENINGS =
  'What are the best|Which|Can you recommend|Compare|What do experts say about|Are there affordable'.split('|')
const THINGS =
  'trail running shoes|marathon shoes|shoes for beginners|recovery sandals|recycled running shoes|winter running shoes'.split(
    '|',
  )
const ENDINGS =
  'for flat feet|under 150 euros|for wide feet|for a first half marathon|that last|for wet ground|for heavy runners'.split(
    '|',
  )

export function promptText(topic: number, index: number): string {
  const opening = OPENINGS[index % OPENINGS.length]
  const ending = ENDINGS[Math.floor(index / OPENINGS.length) % ENDINGS.length]
  const round = Math.floor(index / (OPENINGS.length * ENDINGS.length))
  return `${opening} ${THINGS[topic % THINGS.length]} ${ending}${round === 0 ? '' : ` (variant ${round})`}?`
}

/** A small seeded generator (mulberry32): the same seed gives the same numbers from 0 up to 1 on every machine. */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}

/** A 32-bit hash of a text (FNV-1a), for seeds. */
export function hashText(text: string): number {
  let hash = 0x811c9dc5
  for (let index = 0; index < text.length; index++) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193)
  }
  return hash >>> 0
}
