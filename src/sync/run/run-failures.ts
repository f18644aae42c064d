import { messageOf } from '../../core/errors.ts'
import type { Failure } from './report.ts'

/** What ends a run early, or a project of it. All tasks of the run share it. */
export class RunFailures {
  /** Aborted when everything that is in flight has to end. */
  readonly signal: AbortSignal
  /** Projects that cannot be read, and why. */
  readonly projects = new Map<string, Failure>()
  /** The first failure of the run as a whole. */
  first: Failure | undefined
  /** Why the run was stopped by itself; undefined if it was not, or if somebody asked it to stop. */
  stopReason: Failure | undefined
  private readonly stopped = new AbortController()

  constructor(
    private readonly projectIds: readonly string[],
    { lostLease, request }: { lostLease: AbortSignal; request: AbortSignal | undefined },
  ) {
    this.signal = AbortSignal.any([this.stopped.signal, ...(request === undefined ? [] : [request])])
    const end = () => this.stopRun({ reason: messageOf(lostLease.reason), code: 'transient' })
    lostLease.addEventListener('abort', end, { once: true })
    if (lostLease.aborted) end()
  }

  note(failure: Failure): void {
    this.first ??= failure
  }

  /** Ends the run at once, with what is in flight. */
  stopRun(failure: Failure): void {
    this.note(failure)
    this.stopReason ??= failure
    this.stopped.abort()
  }

  /** Lets what is in flight end, and begins nothing else of the project. */
  failProject(projectId: string, failure: Failure): void {
    this.projects.set(projectId, failure)
    // The only project: its failure is that of the run.
    if (this.projectIds.length === 1) this.note(failure)
  }

  /** Lets what is in flight end, and begins nothing else. */
  failRun(failure: Failure): void {
    for (const id of this.projectIds) if (!this.projects.has(id)) this.projects.set(id, failure)
    this.note(failure)
  }
}
