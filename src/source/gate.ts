import type { ConnectionFailure } from '../core/connection-failure.ts'
import { DownError, InterruptedError, TransientError } from '../core/errors.ts'
import { monotonic } from '../core/waiting.ts'
import { Breaker, isDown } from './breaker.ts'
import type { RequestBudget } from './budget.ts'
import { LONGEST_WAIT_MS, RATE_LIMITED, UnsentError } from './retry-policy.ts'

/** The key of a request, and the project if the key spans several. */
export interface Caller {
  key: string
  projectId: string | undefined
}

/** What is known of a caller. Its requests succeed, fail and wait together. */
export interface Account extends Caller {
  /** For people. */
  name: string
  budget: RequestBudget
  breaker: Breaker
  /** Open if every request is refused for its rate. */
  limits: Breaker
  operations: Map<string, Breaker>
  /** The service asked for a wait that is longer than a run allows. */
  pausedUntil: number
  pauseReason: string
}

export interface Outage {
  down: boolean
  /** The part that does not answer: the service, or a project. */
  what: string
  reason: string
}

export interface GateOptions {
  /** How long a service that gave answers before is waited for. */
  patienceMs: number
  budgetFor: (project: string, key: string) => RequestBudget
  onOutage?: (outage: Outage) => void
}

interface Request {
  account: Account
  operation: string
  isDivisible: boolean
  signal: AbortSignal | undefined
  onWait?: ((ms: number) => void) | undefined
  /** Sends a small request. Gives how it failed: undefined if there was a usable answer. */
  probe(account: Account): Promise<TransientError | undefined>
}

// An address that never worked is probably wrong.
const FIRST_CONTACT_MS = 5000
const MANY_RATE_LIMITS = 10
// More than a project needs, since chance must not end a whole stream.
const OPERATION_FAILURES = 20
const LEAST_PROBES = 2
const MOST_PROJECTS = 3
/** More than the last probes take. */
const PROBES_MS = 60_000

/** Decides when a request may be sent: there is a breaker for the host, for each project, and for each of its operations. */
export class Gate {
  private readonly service: Breaker
  private readonly accounts = new Map<string, Account>()
  /** Accounts that failed since the last answer. */
  private readonly failing = new Set<Account>()
  private isReached = false
  private connection: ConnectionFailure | undefined
  private turn = 0

  constructor(
    private readonly host: string,
    private readonly options: GateOptions,
  ) {
    const { patienceMs } = options
    this.service = new Breaker({
      scope: 'service',
      message: (silence) => this.unreachable() ?? `the service at ${host} has given no usable answer ${silence}`,
      // One project without answers is no proof for the others.
      opens: (failures, isLate) => this.connection !== undefined || (this.failing.size > 1 && isDown(failures, isLate)),
      patienceMs: () => (this.isHopeless ? 0 : this.isReached ? patienceMs : Math.min(patienceMs, FIRST_CONTACT_MS)),
      // A few projects without answers are no proof for the others, so several are probed.
      leastProbes: () => (this.isHopeless ? 0 : Math.min(MOST_PROJECTS, Math.max(LEAST_PROBES, this.accounts.size))),
      onChange: (down, reason) => options.onOutage?.({ down, what: 'the service', reason }),
    })
  }

  /** Waits until there are answers. Throws a DownError where waiting is useless. */
  async ready(request: Request): Promise<void> {
    const { account, operation, onWait, probe } = request
    const { breaker, limits, operations } = account
    const isOpen = () => this.service.state !== 'closed' || breaker.state !== 'closed'
    do {
      if (account.pausedUntil > monotonic()) throw new DownError(account.pauseReason, 'project')
      if (isOpen()) onWait?.(this.options.patienceMs + PROBES_MS)
      await this.service.pass(request, () => this.ask(this.nextToProbe() ?? account, probe))
      await breaker.pass(request, () => this.ask(account, probe))
    } while (isOpen())
    await limits.pass(request)
    await operations.get(operation)?.pass(request)
  }

  /** Learns how a request ended: without an error, if its answer can be used. A refusal is an answer, too. */
  ended({ account, operation, isDivisible }: Request, sentAt: number, error?: unknown): void {
    if (error instanceof InterruptedError) return
    const isAnswer = !(error instanceof TransientError)
    if (isAnswer || error.status === RATE_LIMITED) this.noteAnswer(account)
    if (isAnswer) {
      account.limits.succeed()
      account.operations.delete(operation)
    } else if (error.status === RATE_LIMITED) account.limits.fail(error, sentAt)
    else {
      this.failing.add(account)
      this.noteFailure(error)
      this.service.fail(error, sentAt)
      if (this.connection === undefined) {
        account.breaker.fail(error, sentAt)
        // A request for several days that ran out of time is its own fault, and shorter ones follow.
        const isTooLong = isDivisible && (error.timedOut || [408, 504].includes(error.status ?? 0))
        if (!isTooLong) this.operationOf(account, operation).fail(error, sentAt)
      }
    }
    if (!isAnswer && (error.retryAfterMs ?? 0) > LONGEST_WAIT_MS) this.pause(account, error)
  }

  /** Called at the start of a run: what was given up may be probed once more. A wait that the service asked for stays. */
  resetOutages(callers: readonly Caller[]): void {
    for (const caller of callers) this.accountOf(caller)
    this.service.allowProbe()
    for (const { breaker, limits, operations } of this.accounts.values()) {
      breaker.allowProbe()
      limits.succeed()
      operations.clear()
    }
  }

  /** Whether the service answered this account since a time. If it is not known, a probe asks. */
  async isAnswering({ account, probe }: Request, since: number): Promise<boolean> {
    return account.breaker.answeredAt >= since || (await this.ask(account, probe)) === undefined
  }

  private pause(account: Account, { retryAfterMs = 0, message }: TransientError): void {
    const until = monotonic() + retryAfterMs
    if (account.pausedUntil >= until) return
    account.pausedUntil = until
    account.limits.succeed()
    const date = retryAfterMs > YEAR_MS ? 'for more than a year' : `until ${dateIn(retryAfterMs)}`
    const most = `a run waits for no more than ${LONGEST_WAIT_MS / 1000} s`
    account.pauseReason = `${account.name}: the service asks to wait ${date}, and ${most} (${message})`
  }

  private noteAnswer({ breaker }: Account): void {
    this.isReached = true
    this.failing.clear()
    this.turn = 0
    this.service.succeed()
    breaker.succeed()
  }

  private noteFailure(error: TransientError): void {
    this.connection = error instanceof UnsentError ? error.connection : undefined
    this.isReached ||= this.connection === undefined
  }

  private unreachable(): string | undefined {
    if (this.connection === undefined || (this.isReached && !this.isHopeless)) return undefined
    const { cause, kind } = this.connection
    const guess = kind === 'handshake' ? '; is it an http:// address?' : ''
    return `VISIBILITY_API_URL: ${this.host} cannot be reached: ${cause}${guess}`
  }

  /** True if trying again cannot help: a bad certificate, or a first contact with something that speaks no TLS. */
  private get isHopeless(): boolean {
    const kind = this.connection?.kind
    return kind === 'certificate' || (kind === 'handshake' && !this.isReached)
  }

  private async ask(account: Account, probe: Request['probe']): Promise<TransientError | undefined> {
    const failure = await probe(account)
    // An answer to one project is one of the service, too.
    if (failure === undefined) this.noteAnswer(account)
    else this.noteFailure(failure)
    return failure
  }

  /** Accounts without failures are probed first. An answer to one of them shows that the service is up. */
  private nextToProbe(): Account | undefined {
    const free = [...this.accounts.values()].filter(({ pausedUntil }) => pausedUntil <= monotonic())
    const order = free.sort((a, b) => Number(this.failing.has(a)) - Number(this.failing.has(b)))
    return order[this.turn++ % Math.max(1, order.length)]
  }

  accountOf({ key, projectId }: Caller): Account {
    const id = JSON.stringify([projectId, key])
    const known = this.accounts.get(id)
    if (known !== undefined) return known
    const { patienceMs, budgetFor, onOutage } = this.options
    const name = projectId === undefined ? 'the project of the key' : `project ${projectId}`
    const breaker = new Breaker({
      scope: 'project',
      message: (silence) => `${name}: the service at ${this.host} has given no usable answer ${silence}`,
      patienceMs: () => patienceMs,
      leastProbes: () => LEAST_PROBES,
      onChange: (down, reason) => onOutage?.({ down, what: name, reason }),
    })
    const limits = new Breaker({
      scope: 'project',
      message: (silence) => `${name}: the service has refused every request ${silence}`,
      patienceMs: () => LONGEST_WAIT_MS,
      opens: (failures, isLate) => failures >= MANY_RATE_LIMITS && isLate,
    })
    const budget = budgetFor(projectId ?? '', key)
    const account = {
      key,
      projectId,
      name,
      budget,
      breaker,
      limits,
      operations: new Map(),
      pausedUntil: 0,
      pauseReason: '',
    }
    this.accounts.set(id, account)
    return account
  }

  private operationOf({ name, operations }: Account, operation: string): Breaker {
    const known = operations.get(operation)
    if (known !== undefined) return known
    const breaker = new Breaker({
      scope: 'operation',
      message: (silence) => `${name}: ${operation} has given no usable answer ${silence}, though others have`,
      patienceMs: () => this.options.patienceMs,
      // Number alone is not enough: everything in flight may have failed at once.
      opens: (failures, isLate) => failures >= OPERATION_FAILURES && isLate,
    })
    operations.set(operation, breaker)
    return breaker
  }
}

const YEAR_MS = 366 * 86_400_000

function dateIn(ms: number): string {
  return `${new Date(Date.now() + ms).toISOString().slice(0, 19)}Z`
}
