/** Whether the database answers. */
export interface DatabaseState {
  up: boolean
  /** How long it has been so. */
  forMs: number
  /** Why it is not up. */
  reason: string | undefined
  /** False if it answers, but will not have us: waiting does not help. */
  mayPass: boolean
}
