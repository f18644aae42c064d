import { createServer, type IncomingHttpHeaders, request } from 'node:http'
import type { AddressInfo } from 'node:net'

/** A cron that does not come round during a test. */
export const NEVER = '0 0 1 1 *'

export async function until(what: () => Promise<boolean> | boolean): Promise<void> {
  for (let attempt = 0; attempt < 1200; attempt++) {
    if (await what()) return
    await new Promise((done) => setTimeout(done, 50))
  }
  throw new Error('waited in vain')
}

export interface Answer {
  status: number
  text: string
  json(): any
  headers: Headers
}

export async function get(url: string, init?: RequestInit): Promise<Answer> {
  const response = await fetch(url, init)
  const text = await response.text()
  return { status: response.status, text, json: () => JSON.parse(text), headers: response.headers }
}

/** A request under any name: `fetch` does not let one choose the Host header. */
export function getAs(
  url: string,
  host: string | undefined,
): Promise<{ status: number; text: string; headers: IncomingHttpHeaders }> {
  return new Promise((done, fail) => {
    const asked = request(
      url,
      { setHost: false, agent: false, headers: host === undefined ? {} : { host } },
      (answer) => {
        let text = ''
        answer.on('data', (data) => {
          text += data
        })
        answer.on('end', () => done({ status: answer.statusCode!, text, headers: answer.headers }))
      },
    )
    asked.on('error', fail)
    asked.end()
  })
}

export interface Webhook {
  url: string
  /** The messages that were taken. */
  told: any[]
  /** What was told, as "raised run". */
  events(): string[]
  /** How many requests came, answered or not. */
  asked(): number
  close(): Promise<void>
}

/** A webhook that answers with a status, or not at all. */
export async function startWebhook(answer: () => number | 'nothing' = () => 200): Promise<Webhook> {
  const told: any[] = []
  let asked = 0
  const server = createServer((message, reply) => {
    asked++
    let text = ''
    message.on('data', (data) => {
      text += data
    })
    message.on('end', () => {
      const status = answer()
      if (status === 'nothing') return
      if (status === 200) told.push(JSON.parse(text))
      reply.writeHead(status).end('ok')
    })
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook/secret-path`,
    told,
    events: () => told.map(({ event, condition }) => `${event} ${condition}`),
    asked: () => asked,
    close: () =>
      new Promise<void>((done) => {
        server.close(() => done())
        server.closeAllConnections()
      }),
  }
}
