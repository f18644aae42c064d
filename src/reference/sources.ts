import type { Filter } from '../core/vocabulary.ts'
import { type DimensionValues, dimensionFields, groupChats, type ReportQuery } from './aggregate.ts'
import { brandDomain } from './extras.ts'
import { hashText, seededRandom } from './names.ts'
import type { Brand, Chat, Project, World } from './world.ts'

/* Sources that answers retrieve and cite: the reports of domains and URLs, aggregated from the chats like the brand report. */

const OTHERS = [
  ['runnersdigest.example', 'EDITORIAL'],
  ['trailpost.example', 'EDITORIAL'],
  ['encyclopedia.example', 'REFERENCE'],
  ['sportsboard.example', 'UGC'],
  ['athletics-federation.example', 'INSTITUTIONAL'],
  ['shoe-market.example', 'CORPORATE'],
  ['odds-and-ends.example', 'OTHER'],
] as const
const PAGES = [
  ['', 'HOMEPAGE'],
  ['shoes', 'CATEGORY_PAGE'],
  ['shoes/long-run', 'PRODUCT_PAGE'],
  ['best-running-shoes', 'LISTICLE'],
  ['compared', 'COMPARISON'],
  ['talk/which-shoe', 'DISCUSSION'],
  ['how-to-choose', 'HOW_TO_GUIDE'],
  ['stories/winter', 'ARTICLE'],
] as const

interface Source {
  domain: string
  domainKind: string
  url: string
  pageKind: string
  /** Slices by classification overlap. */
  otherKind: string | undefined
  cited: number
}

/** The sources of an answer. Those of brands are likelier where the answer names the brand. */
function sourcesOf(project: Project, chat: Chat): Source[] {
  const random = seededRandom(hashText(`sources ${chat.id} ${chat.mentions.length}`))
  const named = project.brands.filter((brand) => chat.mentions.some((mention) => mention.brand.id === brand.id))
  const domains = [
    ...named.map((brand) => [brandDomain(brand), brand.id === project.brands[0]!.id ? 'OWN' : 'COMPETITOR'] as const),
    ...OTHERS,
  ]
  return Array.from({ length: 2 + Math.floor(random() * 4) }, () => {
    const [domain, domainKind] = domains[Math.floor(random() * domains.length)]!
    const [path, pageKind] = PAGES[Math.floor(random() * PAGES.length)]!
    const url = `https://${domain}/${path}`
    const otherKind = hashText(url) % 8 === 0 ? 'OTHER' : undefined
    return { domain, domainKind, url, pageKind, otherKind, cited: Math.floor(random() * 3) }
  })
}

export function chatContent(project: Project, chat: Chat): Record<string, unknown> {
  const names = chat.mentions.map(({ brand }) => brand.name)
  const answer = names.length === 0 ? 'It depends on the shoe.' : `Look at ${names.join(', ')}.`
  return {
    id: chat.id,
    prompt: { id: chat.prompt.id },
    model: { id: chat.modelId },
    model_channel: { id: chat.channelId },
    messages: [
      { role: 'user', content: chat.prompt.text },
      { role: 'assistant', content: answer },
    ],
    sources: sourcesOf(project, chat).map(({ url, domain, cited }, index) => ({
      url,
      urlNormalized: url,
      domain,
      citationCount: cited,
      citationPosition: cited === 0 ? null : index + 1,
    })),
    brands_mentioned: chat.mentions.map(({ brand, position }) => ({ id: brand.id, name: brand.name, position })),
    queries: [chat.prompt.text.toLowerCase()],
  }
}

/** The brands that a page or domain mentions: its own, and some of the others. */
function mentionedOn({ brands }: Project, address: string): { id: string }[] {
  const isMentioned = (brand: Brand) =>
    address.includes(brandDomain(brand)) || hashText(`${address} ${brand.id}`) % 3 === 0
  return brands.filter(isMentioned).map(({ id }) => ({ id }))
}

/** A page counts as of its own kind and of another one, if it has one; so what is in a slice may be in another as well. */
function isOfKind(source: Source, { operator, values }: Filter, kindOf: (source: Source) => string): boolean {
  const kinds = [kindOf(source), ...(source.otherKind === undefined ? [] : [source.otherKind])]
  return kinds.some((kind) => values.includes(kind) === (operator === 'in'))
}

interface FoundSource {
  source: Source
  values: DimensionValues
  /** The chats that retrieve it, of how many in all. */
  chats: Set<string>
  all: number
  retrievals: number
  cited: number
}

function findSources(
  world: World,
  project: Project,
  query: ReportQuery,
  { nameOf, kindOf }: Record<'nameOf' | 'kindOf', (source: Source) => string>,
): FoundSource[] {
  const ofChats = query.filters.filter(({ field }) => field !== 'classification')
  const ofSources = query.filters.filter(({ field }) => field === 'classification')
  return groupChats(world, project, { ...query, filters: ofChats }).flatMap(({ values, chats }) => {
    const found = new Map<string, FoundSource>()
    for (const chat of chats) {
      for (const source of sourcesOf(project, chat)) {
        if (!ofSources.every((filter) => isOfKind(source, filter, kindOf))) continue
        const empty = { source, values, chats: new Set<string>(), all: chats.length, retrievals: 0, cited: 0 }
        const known = found.get(nameOf(source)) ?? empty
        found.set(nameOf(source), known)
        known.chats.add(chat.id)
        known.retrievals++
        known.cited += source.cited
      }
    }
    return [...found.values()]
  })
}

export function domainReport(world: World, project: Project, query: ReportQuery): Record<string, unknown>[] {
  const by = { nameOf: ({ domain }: Source) => domain, kindOf: ({ domainKind }: Source) => domainKind }
  return findSources(world, project, query, by).map(({ source, values, chats, all, retrievals, cited }) => ({
    domain: source.domain,
    classification: source.domainKind,
    usage_rate: chats.size / all,
    citation_avg: cited / chats.size,
    citation_count: cited,
    retrieved_percentage: chats.size / all,
    retrieval_rate: retrievals / all,
    citation_rate: cited / retrievals,
    retrieved_chat_count: chats.size,
    total_chat_count: all,
    retrieval_count: retrievals,
    mentioned_brands: mentionedOn(project, source.domain),
    ...dimensionFields(values, query.dimensions),
  }))
}

/** A few pages occur twice, each row with a part of the counts: the report has no unique key. */
export function urlReport(world: World, project: Project, query: ReportQuery): Record<string, unknown>[] {
  const by = { nameOf: ({ url }: Source) => url, kindOf: ({ pageKind }: Source) => pageKind }
  return findSources(world, project, query, by).flatMap(({ source, values, chats, all, retrievals, cited }) => {
    const row = (usage: number, retrieved: number, citations: number) => ({
      url: source.url,
      classification: source.pageKind,
      title: `${source.pageKind.toLowerCase().replaceAll('_', ' ')} of ${source.domain}`,
      usage_count: usage,
      citation_count: citations,
      citation_avg: citations / usage,
      retrievals: retrieved,
      citation_rate: citations / retrieved,
      retrieval_count: retrieved,
      total_chat_count: all,
      mentioned_brands: mentionedOn(project, source.url),
      ...(source.pageKind === 'DISCUSSION' && { channel_title: source.domain }),
      ...dimensionFields(values, query.dimensions),
    })
    const isTwice = chats.size > 1 && retrievals > 1 && hashText(JSON.stringify([source.url, values])) % 5 === 0
    const first = Math.min(1, cited)
    return isTwice
      ? [row(1, 1, first), row(chats.size - 1, retrievals - 1, cited - first)]
      : [row(chats.size, retrievals, cited)]
  })
}
