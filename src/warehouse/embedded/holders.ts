import { timingSafeEqual } from 'node:crypto'
import { createServer, type Server, type Socket } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { type CommandMessage, type Failed, type KeeperMessage, lineOf, onMessages, type Ready } from './messages.ts'

const TOKEN_MS = 10_000
const CLOSE_MS = 2000
const released = lineOf({ is: 'released' })

/**
 * The commands that need the server: each holds it by a connection. The system closes the connections of a process
 * however it ends, so the count is never wrong.
 */
export class Holders {
  readonly #token: string
  readonly #held = new Set<Socket>()
  readonly #leaving = new Set<Socket>()
  readonly #server: Server
  #state: Ready | Failed | undefined
  #isStopping = false

  /** `onLeave` is called when one lets go, or is gone. */
  constructor(token: string, onLeave: () => void) {
    this.#token = token
    this.#server = createServer((socket) => this.#welcome(socket, onLeave))
  }

  /** Listens on loopback and gives the port. */
  listen(): Promise<number> {
    return new Promise((done, fail) => {
      this.#server.once('error', fail)
      this.#server.listen(0, '127.0.0.1', () => done((this.#server.address() as { port: number }).port))
    })
  }

  get count(): number {
    return this.#held.size
  }

  get isReady(): boolean {
    return this.#state?.is === 'ready'
  }

  /** Tells all who hold the server, and all who come, how it is. */
  announce(state: Ready | Failed): void {
    this.#state = state
    this.notify(state)
  }

  notify(message: KeeperMessage): void {
    for (const socket of this.#held) socket.write(lineOf(message))
  }

  /** From here on nobody can hold the server. */
  refuse(): void {
    if (!this.#isStopping) this.#server.close()
    this.#isStopping = true
  }

  /** The server has stopped: those who let go last are waiting for that. */
  async close(): Promise<void> {
    const said = [...this.#leaving].map((socket) => new Promise<void>((done) => socket.end(released, () => done())))
    for (const socket of this.#held) socket.end()
    await Promise.race([Promise.all(said), delay(CLOSE_MS)])
  }

  #welcome(socket: Socket, onLeave: () => void): void {
    // A connection that says nothing is not one of ours.
    const impatience = setTimeout(() => socket.destroy(), TOKEN_MS)
    socket.on('error', () => {})
    socket.on('close', () => {
      clearTimeout(impatience)
      this.#leaving.delete(socket)
      if (this.#held.delete(socket)) onLeave()
    })
    onMessages<CommandMessage>(socket, (message) => {
      if (message.is === 'hold' && this.#knows(message.token)) {
        clearTimeout(impatience)
        this.#take(socket)
      } else if (message.is === 'release' && this.#held.delete(socket)) {
        // The last one is answered when the server has stopped.
        if (this.#held.size > 0) socket.end(released)
        else this.#leaving.add(socket)
        onLeave()
      } else socket.destroy()
    })
  }

  #take(socket: Socket): void {
    if (this.#isStopping) {
      socket.end(lineOf({ is: 'stopping' }))
      return
    }
    this.#held.add(socket)
    socket.write(lineOf({ is: 'hello' }))
    if (this.#state !== undefined) socket.write(lineOf(this.#state))
  }

  #knows(token: unknown): boolean {
    const given = Buffer.from(String(token))
    const expected = Buffer.from(this.#token)
    return given.length === expected.length && timingSafeEqual(given, expected)
  }
}
