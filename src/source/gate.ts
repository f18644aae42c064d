import type { ConnectionFailure } from '../core/connection-failure.ts'
import { DownError, type TransientError } from '../core/errors.ts'
import { monotonic } from '../core/waiting.ts'
import type { Permit, RequestBudget } from './budget.ts'
import { Circuit, type CircuitOptions, spanOf } from './circuit.ts'
import { LONGEST_WAIT_MS, UnsentError } from './retry-policy.ts'

/** A caller and its request budget. Requests of one account succeed, fail and wait together. */
export interface Account {
  name: string
  key: string
  projectId: string | undefined
  budget: RequestBudget
}

export interface Outage {
  /** False when it is over. */
  down: boolean
  /** The part that does not answer: the service, or a project. */
  what: string
  reason: string
}

export interface GateOptions {
  /** The host of the service, for people. */
  host: string
  /** How long a service that gave answers before is waited for. */
  patienceMs: number
  onOutage?: ((outage: Outage) => void) | undefined
}

/** A waiting request: it may be asked to stop, and reports the longest wait. */
interface Waiter {
  signal?: AbortSignal | undefined
  onWait?: ((ms: number) => void) | undefined
}

/** A small request, and how it failed: undefined if there was a usable answer. */
type Probe = (account: Account) => Promise<TransientError | undefined>

// An address that never worked is probably wrong.
const FIRST_CONTACT_MS = 5000
// More than a circuit needs, since chance must not end a whole stream.
const OPERATION_FAILURES = 20
const OPERATION_PAUSE_MS = 30_000
const MANY_RATE_LIMITS = 10
const LEAST_PROBES = 2
const MOST_PROJECTS = 3
/** More than the last probes take. */
const PROBES_MS = 60_000

/**
 * Decides whether requests may be sent. If the service or a project does not answer, the gate sends small probes until one
 * succeeds or the patience ends. It stops requests to an operation that fails while others succeed. It waits as long as
 * the service asks for a project.
 */
export class Gate {
  private readonly service: Circuit
  private readonly accounts = new Map<string, AccountState>()
  /** The names of accounts that failed since the last answer. */
  private readonly failing = new Set<string>()
  private readonly waiting = new Map<AbortController, Account>()
  private isReached = false
  private connection: ConnectionFailure | undefined
  private turn = 0

  constructor(private readonly options: GateOptions) {
    this.service = this.circuit('the service', {
      patienceMs: () => (this.isReached ? options.patienceMs : Math.min(options.patienceMs, FIRST_CONTACT_MS)),
      // A few projects without answers are no proof for the others, so several are probed.
      leastProbes: () => Math.min(MOST_PROJECTS, Math.max(LEAST_PROBES, this.accounts.size)),
    })
  }

  /** Waits until the request may be sent. Throws a DownError where waiting is useless. */
  async enter(account: Account, operation: string, probe: Probe, { signal, onWait }: Waiter): Promise<void> {
    const state = this.stateOf(account)
    for (;;) {
      if (state.pausedUntil > monotonic()) throw new DownError(state.pauseReason, 'project')
      if (this.service.isOpen || state.circuit.isOpen) onWait?.(this.options.patienceMs + PROBES_MS)
      await this.service.pass(
        () => this.ask(this.nextToProbe() ?? account, probe),
        signal,
        () => this.serviceError(),
      )
      await state.circuit.pass(
        () => this.ask(account, probe),
        signal,
        () => this.projectError(account, state),
      )
      if (!this.service.isOpen) break
    }
    const trouble = state.operations.get(operation)
    if (trouble === undefined || !this.isBroken(trouble)) return
    if (monotonic() < trouble.tryAt) throw this.operationError(account, operation, trouble)
    trouble.tryAt = monotonic() + OPERATION_PAUSE_MS
  }

  /**
   * Called at the start of a run: what was given up may be probed once more. A wait that the service asked for stays. `accounts`
   * are those that will be used.
   */
  resetOutages(accounts: readonly Account[]): void {
    for (const account of accounts) this.stateOf(account)
    this.service.allowProbe()
    for (const state of this.accounts.values()) {
      state.circuit.allowProbe()
      state.operations.clear()
      if (state.rateLimits > 0) state.pausedUntil = state.rateLimits = 0
    }
  }

  /** Waits for a permit of the budget. Undefined if requests are blocked meanwhile. */
  async takePermit(account: Account, { signal, onWait }: Waiter): Promise<Permit | undefined> {
    const stop = new AbortController()
    const onAbort = () => stop.abort()
    signal?.addEventListener('abort', onAbort)
    this.waiting.set(stop, account)
    try {
      if (signal?.aborted) onAbort()
      const permit = await account.budget.acquire(stop.signal, onWait)
      if (!this.isBlocked(account)) return permit
      permit.drop()
      return undefined
    } catch (error) {
      if (signal?.aborted || !stop.signal.aborted) throw error
      return undefined
    } finally {
      this.waiting.delete(stop)
      signal?.removeEventListener('abort', onAbort)
    }
  }

  /** A response that can be used, or one that says that the request was wrong. */
  answered(account: Account, operation: string): void {
    const state = this.stateOf(account)
    this.noteAnswer(account)
    state.rateLimits = 0
    state.operations.delete(operation)
  }

  /** Whether the service answered this account since a time. If it is not known, a probe asks. */
  async isAnswering(account: Account, since: number, probe: Probe): Promise<boolean> {
    if (this.stateOf(account).circuit.answeredAt >= since) return true
    return (await this.ask(account, probe)) === undefined
  }

  /** A 429: an answer, but one that must not come for ever. */
  rateLimited(account: Account, error: TransientError, sentAt: number): void {
    this.noteAnswer(account)
    const state = this.stateOf(account)
    if (state.rateLimits++ === 0) state.rateLimitedSince = sentAt
    const rateLimitedMs = monotonic() - state.rateLimitedSince
    if (state.rateLimits < MANY_RATE_LIMITS || rateLimitedMs < LONGEST_WAIT_MS) return
    const reason = `the service has refused every request for ${spanOf(rateLimitedMs)} (the last: ${error.message})`
    this.pauseFor(state, OPERATION_PAUSE_MS, reason)
  }

  /** `tooLong`: a request for several days ran out of time. That is its own fault, and shorter ones follow. */
  failed(account: Account, operation: string, error: TransientError, sent: { at: number; isTooLong: boolean }): void {
    const state = this.stateOf(account)
    this.failing.add(account.name)
    this.noteConnection(error)
    if (this.connection !== undefined) {
      this.service.fail(error, sent.at, 'now')
      if (this.isHopeless) this.service.giveUp()
      return
    }
    this.service.fail(error, sent.at, this.failing.size > 1 ? 'in time' : 'never')
    state.circuit.fail(error, sent.at, 'in time')
    if (sent.isTooLong) return
    const { failures, since } = state.operations.get(operation) ?? { failures: 0, since: sent.at }
    const tryAt = monotonic() + OPERATION_PAUSE_MS
    state.operations.set(operation, { failures: failures + 1, since, reason: error.message, tryAt })
  }

  /** The service asks for a wait that is too long: nothing is sent for this project before it is over. */
  pause(account: Account, waitMs: number, reason: string): void {
    const state = this.stateOf(account)
    if (state.pausedUntil >= monotonic() + waitMs) return
    state.rateLimits = 0
    const most = `a run waits for no more than ${LONGEST_WAIT_MS / 1000} s`
    this.pauseFor(state, waitMs, `the service asks to wait ${until(waitMs)}, and ${most} (${reason})`)
  }

  private pauseFor(state: AccountState, ms: number, reason: string): void {
    state.pausedUntil = monotonic() + ms
    state.pauseReason = `${nameOf(state.account)}: ${reason}`
    this.callBack()
  }

  /** Number alone is not enough: everything in flight may have failed at once. */
  private isBroken({ failures, since }: Trouble): boolean {
    return failures >= OPERATION_FAILURES && monotonic() - since >= this.options.patienceMs
  }

  private isBlocked(account: Account): boolean {
    const state = this.stateOf(account)
    return this.service.isOpen || state.circuit.isOpen || state.pausedUntil > monotonic()
  }

  /** Wakes requests that wait for the budget, which would notice much later. */
  private callBack(): void {
    for (const [stop, account] of this.waiting) if (this.isBlocked(account)) stop.abort()
  }

  private noteAnswer(account: Account): void {
    this.isReached = true
    this.failing.clear()
    this.turn = 0
    this.service.succeed()
    this.stateOf(account).circuit.succeed()
  }

  private noteConnection(error: TransientError): void {
    this.connection = error instanceof UnsentError ? error.connection : undefined
    if (this.connection === undefined) this.isReached = true
  }

  /** True if trying again cannot help: a bad certificate, or a first contact with something that speaks no TLS. */
  private get isHopeless(): boolean {
    const kind = this.connection?.kind
    return kind === 'certificate' || (kind === 'handshake' && !this.isReached)
  }

  /** Accounts without failures are probed first. An answer to one of them shows that the service is up. */
  private nextToProbe(): Account | undefined {
    const free = [...this.accounts.values()].filter(({ pausedUntil }) => pausedUntil <= monotonic())
    const isFailing = ({ account }: AccountState) => this.failing.has(account.name)
    const order = [...free.filter((state) => !isFailing(state)), ...free.filter(isFailing)]
    return order[this.turn++ % Math.max(1, order.length)]?.account
  }

  private async ask(account: Account, probe: Probe): Promise<TransientError | undefined> {
    const failure = await probe(account)
    // An answer to one project is one of the service, too.
    if (failure === undefined) this.noteAnswer(account)
    else this.noteConnection(failure)
    return failure
  }

  private stateOf(account: Account): AccountState {
    const known = this.accounts.get(account.name)
    if (known !== undefined) return known
    const limits = { patienceMs: () => this.options.patienceMs, leastProbes: () => LEAST_PROBES }
    const circuit = this.circuit(nameOf(account), limits)
    const pause = { pausedUntil: 0, pauseReason: '', rateLimits: 0, rateLimitedSince: 0 }
    const state = { account, circuit, ...pause, operations: new Map<string, Trouble>() }
    this.accounts.set(account.name, state)
    return state
  }

  private circuit(what: string, limits: Pick<CircuitOptions, 'patienceMs' | 'leastProbes'>): Circuit {
    const onChange = (down: boolean, reason: string) => {
      this.callBack()
      this.options.onOutage?.({ down, what, reason })
    }
    return new Circuit({ ...limits, onChange })
  }

  private serviceError(): DownError {
    const { host } = this.options
    if (this.connection !== undefined && (!this.isReached || this.isHopeless)) {
      const { cause, kind } = this.connection
      const guess = kind === 'handshake' ? '; is it an http:// address?' : ''
      return new DownError(`VISIBILITY_API_URL: ${host} cannot be reached: ${cause}${guess}`, 'service')
    }
    return new DownError(`the service at ${host} ${this.service.silence}`, 'service')
  }

  private projectError(account: Account, { circuit }: AccountState): DownError {
    return new DownError(`${nameOf(account)}: the service at ${this.options.host} ${circuit.silence}`, 'project')
  }

  private operationError(account: Account, operation: string, { failures, since, reason }: Trouble): DownError {
    const span = spanOf(monotonic() - since)
    return new DownError(
      `${nameOf(account)}: ${operation} has given no usable answer for ${span}, though others have (${failures} attempts, the last: ${reason})`,
      'operation',
    )
  }
}

interface AccountState {
  account: Account
  circuit: Circuit
  pausedUntil: number
  pauseReason: string
  rateLimits: number
  rateLimitedSince: number
  operations: Map<string, Trouble>
}

/** Failures of one operation in a row. */
interface Trouble {
  failures: number
  since: number
  reason: string
  tryAt: number
}

function nameOf({ projectId }: Account): string {
  return projectId === undefined ? 'the project of the key' : `project ${projectId}`
}

const YEAR_MS = 366 * 86_400_000

function until(waitMs: number): string {
  if (waitMs > YEAR_MS) return 'for more than a year'
  return `until ${new Date(Date.now() + waitMs).toISOString().slice(0, 19)}Z`
}
