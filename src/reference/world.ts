import { type Clock, type Day, dayNumber } from '../core/day.ts'
import {
  AWKWARD_BRANDS,
  BRANDS,
  hashText,
  promptText,
  seededRandom,
  TAGS,
  TOPICS,
  WORLD_COUNTRIES,
  WORLD_MODELS,
} from './names.ts'

/*
 * A deterministic synthetic world. Chats are generated day by day from the seed, and every report is aggregated from
 * those chats, so coarse and fine reports agree. The clock decides what is visible: chats of today arrive through the
 * day, and a part of each day's chats is measured again within 48 hours after it, as the live service does.
 */

export interface WorldOptions {
  seed?: number
  projects?: number
  projectIds?: string[]
  brands?: number
  prompts?: number
  /** How many, or their names. */
  models?: number | string[]
  awkward?: boolean
  /** False: every day is final at once, today too. */
  restating?: boolean
  clock?: Clock
}

export interface Brand {
  id: string
  name: string
  aliases?: string[]
  regex?: string
  strength: number
}

export interface Prompt {
  id: string
  text: string
  topicId: string | null
  tagIds: string[]
  country: string | null
  volume: number | string | undefined
}

interface Mention {
  brand: Brand
  mentions: number
  position: number
  /** From -1 to 1 in eighths, so that sums are exact in any order. */
  sentiment: number
}

export interface Chat {
  id: string
  prompt: Prompt
  modelId: string
  channelId: string
  date: Day
  mentions: Mention[]
}

export interface Project {
  id: string
  key: string
  name: string
  /** ACTIVE if undefined. */
  status?: string
  brands: Brand[]
  prompts: Prompt[]
  suggestions: Prompt[]
  topics: { id: string; name: string }[]
  tags: string[]
  classifications: { name: string; color: string }[]
  urlClassifications: { name: string; color: string }[]
  profile: Record<string, unknown> | null
  credits: number
}

export const COMPANY_KEY = 'reference-company-key'
const DAY_MS = 86_400_000
const { floor, max, min, round, sin, PI } = Math
const SETTLED_MS = 3 * DAY_MS

type GeneratedChat = ReturnType<typeof generateChat>

export type World = ReturnType<typeof createWorld>

export function createWorld(options: WorldOptions = {}) {
  const seed = options.seed ?? 1
  const clock = options.clock ?? (() => new Date())
  const restating = options.restating ?? true
  const models = Array.isArray(options.models) ? options.models : modelNames(options.models ?? 4)
  const projects = Array.from({ length: options.projectIds?.length ?? options.projects ?? 2 }, (_, index) =>
    makeProject(seed, index, options),
  )
  const cache = new Map<string, GeneratedChat[]>()
  const rewrites = new Map<string, number>()
  const droppedChats = new Set<string>()

  /** Projects and days whose chats somebody asked for. */
  const shownDays = new Set<string>()

  function generated(project: Project, date: Day): GeneratedChat[] {
    const name = `${project.id} ${date}`
    shownDays.add(name)
    const known = cache.get(name)
    if (known !== undefined) return known
    const epoch = rewrites.get(name) ?? 0
    const made = project.prompts.flatMap((prompt) =>
      models.map((modelId) => generateChat(seed, { project, prompt, modelId, date }, epoch)),
    )
    cache.set(name, made)
    return made
  }

  return {
    projects,
    models,
    clock,

    project(id: string): Project | undefined {
      return projects.find((project) => project.id === id)
    },

    /** The chats of a day as the service shows them at this moment. */
    chatsOf(project: Project, date: Day): Chat[] {
      const now = clock().getTime()
      const start = dayNumber(date) * DAY_MS
      if (restating && now < start) return []
      const settled = !restating || now - start > SETTLED_MS
      const chats: Chat[] = []
      for (const chat of generated(project, date)) {
        if (droppedChats.has(chat.first.id)) continue
        if (settled || now >= chat.revisedAt) chats.push(chat.second)
        else if (now >= chat.appearsAt) chats.push(chat.first)
      }
      return chats
    },

    movedChannels: new Map<string, string>(),

    /** A chat by its id, if a day that was asked for has it. */
    chat(project: Project, id: string): Chat | undefined {
      for (const name of [...shownDays].filter((day) => day.startsWith(`${project.id} `))) {
        const found = this.chatsOf(project, name.slice(project.id.length + 1)).find((chat) => chat.id === id)
        if (found !== undefined) return found
      }
      return undefined
    },

    /** The service measures these days again: values change, and nothing says so. */
    rewriteDays(project: Project, days: Day[]): void {
      for (const day of days) {
        const name = `${project.id} ${day}`
        rewrites.set(name, (rewrites.get(name) ?? 0) + 1)
        cache.delete(name)
      }
    },

    renameBrand(project: Project, brandId: string, name: string): void {
      const brand = project.brands.find(({ id }) => id === brandId)
      if (brand !== undefined) brand.name = name
    },

    /** Deleting a prompt deletes its chats, in the past too. */
    deletePrompt(project: Project, promptId: string): void {
      project.prompts = project.prompts.filter(({ id }) => id !== promptId)
      forget(project)
    },

    /** Deleting a topic detaches its prompts. */
    deleteTopic(project: Project, topicId: string): void {
      project.topics = project.topics.filter(({ id }) => id !== topicId)
      for (const prompt of project.prompts) if (prompt.topicId === topicId) prompt.topicId = null
    },

    addPrompt(project: Project, prompt: Prompt): void {
      project.prompts.push(prompt)
      forget(project)
    },

    dropChat(chatId: string): void {
      droppedChats.add(chatId)
    },

    newId(prefix: string, ...parts: (string | number)[]): string {
      return makeId(prefix, seed, ...parts)
    },
  }

  function forget(project: Project): void {
    for (const name of cache.keys()) if (name.startsWith(`${project.id} `)) cache.delete(name)
  }
}

function modelNames(count: number): string[] {
  return Array.from({ length: count }, (_, index) => WORLD_MODELS[index] ?? `famZ-${index}`)
}

/** An id of the service's shape: a prefix and a UUID made from the parts. */
function makeId(prefix: string, ...parts: (string | number)[]): string {
  const random = seededRandom(hashText(`${prefix} ${parts.join(' ')}`))
  let hex = ''
  for (let word = 0; word < 4; word++)
    hex += floor(random() * 4_294_967_296)
      .toString(16)
      .padStart(8, '0')
  return `${prefix}_${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20)}`
}

function makeProject(seed: number, index: number, options: WorldOptions): Project {
  const random = seededRandom(hashText(`project ${seed} ${index}`))
  const names = options.awkward ? AWKWARD_BRANDS : BRANDS
  const brandCount = options.brands ?? 5
  const brands = Array.from({ length: brandCount }, (_, n) => ({
    id: makeId('kw', seed, index, n),
    name: names[(n + index) % names.length]! + (n < names.length ? '' : ` ${n}`),
    strength: 0.75 - (0.55 * n) / brandCount,
  }))
  const topics = TOPICS.map((name, n) => ({ id: makeId('to', seed, index, n), name }))
  const tags = TAGS.map((_, n) => makeId('tg', seed, index, n))
  const makePrompt = (prefix: string, n: number): Prompt => {
    const topic = n % (topics.length + 1)
    return {
      id: makeId(prefix, seed, index, n),
      text: promptText(topic, n),
      // One prompt in seven belongs to no topic.
      topicId: topics[topic]?.id ?? null,
      tagIds: [tags[n % 2]!, ...(n % 3 === 0 ? [tags[2 + (n % 3)]!] : []), ...(n % 5 === 0 ? [tags[4]!] : [])].slice(
        n % 11 === 10 ? 9 : 0,
      ),
      country: n % 13 === 12 ? null : WORLD_COUNTRIES[n % WORLD_COUNTRIES.length]!,
      volume: n % 4 === 3 ? 'very low' : n % 9 === 8 ? undefined : round(random() * 900) * 10,
    }
  }
  return {
    id: options.projectIds?.[index] ?? makeId('or', seed, index),
    key: `reference-project-key-${index + 1}`,
    name: `${brands[0]!.name} ${index === 0 ? 'Europe' : `Market ${index + 1}`}`,
    brands,
    topics,
    tags,
    prompts: Array.from({ length: options.prompts ?? 24 }, (_, n) => makePrompt('pr', n)),
    suggestions: Array.from({ length: 8 }, (_, n) => makePrompt('ps', n + 1000)),
    classifications: [
      { name: 'Own shop', color: 'green' },
      { name: 'Magazines', color: 'sky' },
      { name: 'Retailers', color: 'amber' },
    ],
    urlClassifications: [],
    profile: {
      name: `${brands[0]!.name}`,
      occupation: 'Running shoe maker',
      industry: 'Sporting goods',
      brandPresentation: ['Light shoes for long distances', 'Repair instead of replace'],
      productsAndServices: ['Trail shoes', 'Marathon shoes', 'Repair service'],
      targetMarkets: [
        { location: 'Germany', osmId: '51477' },
        { location: 'France', osmId: '2202162' },
      ],
      audienceDistribution: { simpleRecommendationSeeker: 40, informedShopper: 35, evaluativeResearcher: 25 },
      usedPreparedProfile: index % 2 === 0,
    },
    credits: 100,
  }
}

interface Asked {
  project: Project
  prompt: Prompt
  modelId: string
  date: Day
}

function generateChat(seed: number, asked: Asked, epoch: number) {
  const { project, prompt, modelId, date } = asked
  const name = `${seed} ${project.id} ${prompt.id} ${modelId} ${date}`
  const random = seededRandom(hashText(name))
  const start = dayNumber(date) * DAY_MS
  // When it appears, and when it is measured again.
  const appearsAt = start + random() * DAY_MS
  const revisedAt = start + DAY_MS + random() * 2 * DAY_MS
  const revised = random() < 0.3
  // An id is made from 32 bits, which some of 100,000 chats would share. So its end comes from another 32.
  const id = `${makeId('ch', name).slice(0, -12)}${makeId('ch', name, 'end').slice(-12)}`
  const chat = { id, prompt, modelId, channelId: `channel-${modelId.split('-')[0]}`, date }
  const first: Chat = { ...chat, mentions: mentionsOf(asked, `${name} ${epoch}`) }
  const second: Chat = revised ? { ...chat, mentions: mentionsOf(asked, `${name} ${epoch} again`) } : first
  return { first, second, appearsAt, revisedAt: revised ? revisedAt : appearsAt }
}

/** Which brands an answer names: their strength, a slow trend, the week, the season, and what a model or topic favours. */
function mentionsOf({ project, prompt, modelId, date }: Asked, seedText: string): Mention[] {
  const random = seededRandom(hashText(seedText))
  const day = dayNumber(date)
  const season = sin((2 * PI * day) / 365)
  const weekend = (day + 3) % 7 >= 5 ? -0.05 : 0
  const named: { brand: Brand; rank: number }[] = []
  for (const [index, brand] of project.brands.entries()) {
    const trend = 0.1 * sin((2 * PI * day) / 180 + index)
    const taste = ((hashText(brand.id + modelId) % 100) / 100 - 0.5) * 0.3
    const fit = ((hashText(brand.id + (prompt.topicId ?? '')) % 100) / 100 - 0.5) * 0.4
    const chance = brand.strength + trend + taste + fit + weekend + 0.08 * season * (index % 2 === 0 ? 1 : -1)
    if (random() < chance) named.push({ brand, rank: random() - chance })
  }
  named.sort((a, b) => a.rank - b.rank)
  return named.map(({ brand }, index) => ({
    brand,
    mentions: 1 + floor(random() * 3),
    position: index + 1,
    sentiment: max(-8, min(8, round((random() * 1.4 - 0.4 + (brand.strength - 0.5) * 0.5) * 8))) / 8,
  }))
}
