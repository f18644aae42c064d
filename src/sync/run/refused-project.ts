import { InterruptedError, ProjectError, RefusedError } from '../../core/errors.ts'
import type { CallContext } from '../../source/client.ts'
import type { Run, SyncedProject } from './run.ts'

/** Statuses of a wrong id, or of a plan that has ended. They may as well be about a single request. */
const OF_PROJECT = [400, 402, 404]

/**
 * The error of a project whose requests are all refused: nothing of it was read yet, and another operation is refused in the same
 * way. Undefined if the refusal is about this request alone.
 */
export function refusalOfProject(
  run: Run,
  { project, stream }: { project: SyncedProject; stream?: string },
  error: unknown,
  call: CallContext,
): Promise<ProjectError | undefined> {
  if (project.caller.projectId === undefined || !isRefusalOfProject(error)) return Promise.resolve(undefined)
  const known = run.refusalOf.get(project.id) ?? askOther(run, project, stream, error.status, call)
  run.refusalOf.set(project.id, known)
  return known
}

export function isRefusalOfProject(error: unknown): error is RefusedError & { status: number } {
  // A wrong key or clock has a code of its own.
  return error instanceof RefusedError && error.code === 'refused' && OF_PROJECT.includes(error.status ?? 0)
}

async function askOther(
  { client }: Run,
  { caller }: SyncedProject,
  stream: string | undefined,
  status: number,
  call: CallContext,
): Promise<ProjectError | undefined> {
  try {
    await (stream === 'prompts' ? client.projectProfile(caller, call) : client.ping(caller, call))
    return undefined
  } catch (error) {
    if (error instanceof InterruptedError) throw error
    if (!(error instanceof RefusedError) || error.status !== status) return undefined
    const cause = status === 402 ? 'its plan has ended or does not cover it' : 'the id of the project is wrong'
    return new ProjectError(`everything is refused, so ${cause}: ${error.message}`, { status, cause: error })
  }
}
