// A service that only answers report pages, as fast as it can: days are rendered once and joined for each answer, so
// that what is measured is the reader. Runs in a process of its own; told what to do by its arguments and /control.
import { createServer } from 'node:http'

const DAY_MS = 86_400_000
const [OPEN, COMMA, CLOSE] = ['{"data":[', ',', ']}'].map((text) => Buffer.from(text))
const BRANDS = 5
const MODELS = ['famA-scraper', 'famD-4o-search', 'famB-sonar']
const COUNTRIES = ['DE', 'US', 'GB', 'FR', 'JP']

const options = JSON.parse(process.argv[2] ?? '{}')
const { rowsPerDay = 990, latencyMs = 0 } = options
/** "same", "changed" (every tenth row differs), "vanished" (every twentieth row is missing) or "deleted" (a prompt is). */
let variant = 'same'
/** Every answer in another order. */
let shuffle = false
let latency = latencyMs
let requests = 0
let cache = new Map()

const hex = (number) => (number >>> 0).toString(16).padStart(8, '0')
const uuid = (a, b) => `${hex(a * 2654435761)}-${hex(b).slice(4)}-4000-a000-${hex(b * 40503)}${hex(a).slice(4)}`

/** The rows of a day and their totals, other ones for each project, each as the text between the brackets of the answer. */
function dayText(dayNumber, project = 0) {
  const known = cache.get(`${project}/${dayNumber}`)
  if (known !== undefined) return known
  const date = new Date(dayNumber * DAY_MS).toISOString().slice(0, 10)
  const rows = []
  for (let index = 0; index < rowsPerDay; index++) {
    if (variant === 'vanished' && index % 20 === 7) continue
    const group = Math.floor(index / BRANDS)
    const prompt = Math.floor(group / MODELS.length)
    if (variant === 'deleted' && prompt === 3) continue
    const total = 4 + ((dayNumber + group) % 9)
    const seen = (dayNumber * 7 + index * 13) % (total + 1)
    // What changed stays so when rows vanish after it: otherwise a tenth would change back.
    const isChanged = (variant === 'changed' || variant === 'vanished') && index % 10 === 3
    const mentions = seen * 2 + (isChanged ? 1 : 0)
    const row = {
      brand: { id: `kw_${uuid(index % BRANDS, 1 + project)}`, name: `Brand ${index % BRANDS}` },
      mention_count: mentions,
      visibility: seen / total,
      visibility_count: seen,
      visibility_total: total,
      prompt: { id: `pr_${uuid(prompt, 2)}` },
      model: { id: MODELS[group % MODELS.length] },
      country_code: COUNTRIES[prompt % COUNTRIES.length],
      date,
      share_of_voice: seen / (total * 3),
      sentiment: seen === 0 ? null : 50 + ((index * 37) % 500) / 10,
      sentiment_sum: seen * 0.375,
      sentiment_count: seen,
      position: seen === 0 ? null : 1 + ((index * 11) % 40) / 8,
      position_sum: seen * 3,
      position_count: seen,
    }
    rows.push(row)
  }
  const made = { detail: piecesOf(rows), totals: piecesOf(totalsOf(rows)) }
  cache.set(`${project}/${dayNumber}`, made)
  return made
}

function piecesOf(items) {
  const rows = items.map((item) => JSON.stringify(item))
  return { rows, text: Buffer.from(rows.join(',')), count: rows.length }
}

/** The report by date alone: the rows of a day, added up for each brand. */
function totalsOf(rows) {
  const totals = new Map()
  for (const { brand, date, mention_count, visibility_count, visibility_total } of rows) {
    const sum = totals.get(brand.id) ?? { brand, date, mention_count: 0, visibility_count: 0, visibility_total: 0 }
    totals.set(brand.id, sum)
    sum.mention_count += mention_count
    sum.visibility_count += visibility_count
    sum.visibility_total += visibility_total
  }
  return [...totals.values()].map((sum) => ({ ...sum, visibility: sum.visibility_count / sum.visibility_total }))
}

/** Rows of a range from an offset on: whole days where they fit, parts of a day at the ends. */
function page({ start_date, end_date, dimensions = [], limit = 1000, offset = 0 }, project) {
  const what = dimensions.join() === 'date' ? 'totals' : 'detail'
  const [from, to] = [Date.parse(start_date) / DAY_MS, Date.parse(end_date) / DAY_MS]
  if (shuffle) return shuffledPage(what, from, to, limit, offset)
  const parts = []
  let skip = offset
  let left = limit
  for (let day = from; day <= to && left > 0; day++) {
    const { rows, text, count } = dayText(day, project)[what]
    if (skip >= count) {
      skip -= count
      continue
    }
    const whole = skip === 0 && count <= left
    parts.push(whole ? text : Buffer.from(rows.slice(skip, skip + left).join(',')))
    left -= Math.min(left, count - skip)
    skip = 0
  }
  const joined = parts.flatMap((part, index) => (index === 0 ? [part] : [COMMA, part]))
  return Buffer.concat([OPEN, ...joined, CLOSE])
}

/** A page of all rows of the range in an order that no other answer has. */
function shuffledPage(what, from, to, limit, offset) {
  const rows = []
  for (let day = from; day <= to; day++) rows.push(...dayText(day)[what].rows)
  for (let index = rows.length - 1; index > 0; index--) {
    const other = Math.floor(Math.random() * (index + 1))
    ;[rows[index], rows[other]] = [rows[other], rows[index]]
  }
  return Buffer.concat([OPEN, Buffer.from(rows.slice(offset, offset + limit).join(',')), CLOSE])
}

const server = createServer((request, response) => {
  let body = ''
  request.on('data', (chunk) => {
    body += chunk
  })
  request.on('end', () => {
    const asked = body === '' ? {} : JSON.parse(body)
    if (request.url === '/control') {
      if (asked.variant !== undefined && asked.variant !== variant) cache = new Map()
      variant = asked.variant ?? variant
      latency = asked.latencyMs ?? latency
      shuffle = asked.shuffle ?? shuffle
      // Rendering is not part of what is measured.
      if (asked.warm)
        for (let day = Date.parse(asked.warm.from) / DAY_MS; day <= Date.parse(asked.warm.to) / DAY_MS; day++)
          dayText(day)
      const seen = requests
      requests = 0
      return response.end(JSON.stringify({ requests: seen }))
    }
    requests++
    const answer = () => {
      const bytes = page(asked, Number(/or_(\d+)/.exec(asked.project_id ?? request.url)?.[1] ?? 0))
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': bytes.length }).end(bytes)
    }
    if (latency > 0) setTimeout(answer, latency)
    else answer()
  })
})
server.listen(0, '127.0.0.1', () =>
  process.stdout.write(`${JSON.stringify({ url: `http://127.0.0.1:${server.address().port}/v1` })}\n`),
)
