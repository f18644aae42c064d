import { statfsSync } from 'node:fs'
import { codeOf, TransientError } from '../../core/errors.ts'

/** What a new cluster takes with its first tables, and what an existing one needs to start and to go on. */
export const NEW_CLUSTER_MB = 120
export const RUNNING_MB = 64

/** True for an error, or the words of Postgres, that mean a full disk or a used up quota. */
export function isDiskFull(problem: unknown): boolean {
  if (typeof problem === 'string') return /no space left on device|disk quota exceeded/i.test(problem)
  return ['ENOSPC', 'EDQUOT'].includes(codeOf(problem) ?? '')
}

/** Not bad usage: the same command works once there is room. */
export function diskFullError(folder: string, neededMb: number): TransientError {
  return new TransientError(
    `the disk that holds ${folder} is too full${room(folder)}: have at least ${neededMb} MB free there and run the command ` +
      'again; nothing has to be repaired',
  )
}

function room(folder: string): string {
  try {
    const { bavail, blocks, bsize } = statfsSync(folder)
    const megabytes = (number: number) => Math.floor((number * bsize) / 1_048_576)
    return ` (${megabytes(bavail)} MB free of ${megabytes(blocks)} MB)`
  } catch {
    return ''
  }
}
