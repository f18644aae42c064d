import { codeOf } from './errors.ts'

/**
 * Why something was not loaded, for programs and for the step that helps: the codes of errors, `lost` for windows whose
 * workers died again and again, `dead` for what an older version gave up in the queue, and `error` for everything that nobody foresaw.
 */
export const VERDICTS = [
  'key',
  'project',
  'refused',
  'incomplete',
  'bad-page',
  'transient',
  'dead',
  'lost',
  'error',
  'stale',
  'interrupted',
] as const
export type Verdict = (typeof VERDICTS)[number]

/** A verdict from elsewhere: from a worker, or from the ledger of an older version. What is down may come back. */
export function toVerdict(text: unknown): Verdict {
  if (typeof text === 'string' && text.endsWith('-down')) return 'transient'
  return VERDICTS.find((verdict) => verdict === text) ?? 'error'
}

export function verdictOf(error: unknown): Verdict {
  return toVerdict(codeOf(error))
}
