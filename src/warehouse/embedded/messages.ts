import type { Readable } from 'node:stream'

/* What a command and the keeper of a server say to each other: one JSON object in a line. */

/** What a keeper is started with, as JSON in its only argument. */
export interface KeeperOptions {
  folder: string
  /** Extra server settings. */
  settings: Record<string, string>
}

/** The first line on the keeper's standard output. */
export type KeeperGreeting =
  | { is: 'listening'; port: number; token: string }
  /** Another keeper holds the folder. */
  | { is: 'busy' }
  | Failed

export interface Failed {
  is: 'failed'
  message: string
  /** Bad usage; otherwise it may pass when tried again. */
  usage: boolean
}

export interface Ready {
  is: 'ready'
  port: number
  how: string
  /** The data folder as device and inode. */
  data: string
}

export type KeeperMessage =
  | { is: 'hello' }
  | Ready
  | Failed
  /** Too late to be held: the server is being stopped. */
  | { is: 'stopping' }
  /** The server goes on without room on its disk. */
  | { is: 'full'; message: string }
  /** The answer to a release, given when the server has stopped or others hold it. */
  | { is: 'released' }

export type CommandMessage = { is: 'hold'; token: string } | { is: 'release' }

/** Longer lines are not ours. */
const LONGEST = 65_536

/** Calls for every line that is a message; a line that is none ends the stream. */
export function onMessages<T extends { is: string }>(stream: Readable, receive: (message: T) => void): void {
  let rest = ''
  stream.setEncoding('utf8')
  stream.on('data', (text: string) => {
    const lines = (rest + text).split('\n')
    rest = lines.pop() ?? ''
    if (rest.length > LONGEST) stream.destroy()
    for (const line of lines) {
      const message = parse<T>(line)
      if (message === undefined) stream.destroy()
      else if (!stream.destroyed) receive(message)
    }
  })
}

function parse<T extends { is: string }>(line: string): T | undefined {
  try {
    const message = JSON.parse(line) as T | null
    return typeof message?.is === 'string' ? message : undefined
  } catch {
    return undefined
  }
}

export function lineOf(message: KeeperGreeting | KeeperMessage | CommandMessage): string {
  return `${JSON.stringify(message)}\n`
}
