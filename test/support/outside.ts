import { createServer } from 'node:http'
import { type AddressInfo, createServer as createTcpServer, type Socket } from 'node:net'

export interface Heard {
  method: string
  path: string
  headers: Record<string, string | string[] | undefined>
  body: string
}

/** Those outside: whatever is sent here is kept, and answered, or not. */
export interface Outside {
  url: string
  heard: Heard[]
  close(): Promise<void>
}

export async function startOutside(answer: () => number | 'nothing' = () => 200): Promise<Outside> {
  const heard: Heard[] = []
  const server = createServer((message, reply) => {
    let body = ''
    message.on('data', (data) => {
      body += data
    })
    message.on('end', () => {
      heard.push({ method: message.method!, path: message.url!, headers: message.headers, body })
      const status = answer()
      if (status !== 'nothing') reply.writeHead(status).end()
    })
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    heard,
    close: () =>
      new Promise<void>((done) => {
        server.close(() => done())
        server.closeAllConnections()
      }),
  }
}

export interface Mail {
  login: string
  from: string
  to: string[]
  data: string
}

/** A mail server that takes everything, or says nothing at all. */
export async function startMailServer(
  isSilent: () => boolean = () => false,
): Promise<{ port: number; mails: Mail[]; close(): Promise<void> }> {
  const mails: Mail[] = []
  const sockets = new Set<Socket>()
  const server = createTcpServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    if (isSilent()) return
    let mail: Mail = { login: '', from: '', to: [], data: '' }
    let isData = false
    let left = ''
    const say = (line: string) => socket.write(`${line}\r\n`)
    const command = (line: string) => {
      const word = line.slice(0, 4).toUpperCase()
      if (word === 'EHLO') return say('250-test\r\n250 AUTH PLAIN')
      if (word === 'AUTH') {
        mail.login = Buffer.from(line.split(' ')[2]!, 'base64').toString().replaceAll('\0', ' ').trim()
        return say('235 in')
      }
      if (word === 'MAIL') mail.from = /<(.*?)>/.exec(line)![1]!
      if (word === 'RCPT') mail.to.push(/<(.*?)>/.exec(line)![1]!)
      if (word === 'DATA') {
        isData = true
        return say('354 go on')
      }
      if (word === 'QUIT') return socket.end('221 bye\r\n')
      return say('250 ok')
    }
    socket.on('data', (chunk) => {
      left += chunk.toString()
      for (let end = left.indexOf('\r\n'); end >= 0; end = left.indexOf('\r\n')) {
        const line = left.slice(0, end)
        left = left.slice(end + 2)
        if (!isData) command(line)
        else if (line === '.') {
          isData = false
          mails.push(mail)
          mail = { ...mail, to: [], data: '' }
          say('250 taken')
        } else mail.data += `${line}\n`
      }
    })
    say('220 test')
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  return {
    port: (server.address() as AddressInfo).port,
    mails,
    close: () =>
      new Promise<void>((done) => {
        for (const socket of sockets) socket.destroy()
        server.close(() => done())
      }),
  }
}

/** The samples of an exposition, checked as Prometheus would: types before samples, each sample once, a number each. */
export function parseExposition(text: string): Map<string, number> {
  if (!text.endsWith('\n')) throw new Error('the last line has no end')
  const types = new Map<string, string>()
  const samples = new Map<string, number>()
  for (const line of text.split('\n').filter((one) => one !== '')) {
    const meta = /^# (HELP|TYPE) ([a-z_]+) (.+)$/.exec(line)
    if (meta !== null) {
      if (meta[1] === 'TYPE') {
        if (types.has(meta[2]!)) throw new Error(`a second type: ${line}`)
        types.set(meta[2]!, meta[3]!)
      }
      continue
    }
    const sample = /^([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*\})? (\S+)$/.exec(line)
    if (sample === null) throw new Error(`not a sample: ${line}`)
    const [, name, labels = '', value] = sample
    const family = types.has(name!) ? name! : name!.replace(/_(bucket|sum|count)$/, '')
    if (!types.has(family)) throw new Error(`no type: ${line}`)
    const number = value === '+Inf' ? Number.POSITIVE_INFINITY : Number(value)
    if (Number.isNaN(number)) throw new Error(`no number: ${line}`)
    if (samples.has(name! + labels)) throw new Error(`twice: ${line}`)
    samples.set(name! + labels, number)
  }
  return samples
}
