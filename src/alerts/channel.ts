import type { Notice } from './notice.ts'

/** A way to send alerts to people. */
export interface Channel {
  name: 'webhook' | 'slack' | 'pagerduty' | 'e-mail'
  /** Throws if it was not taken. */
  send(notice: Notice, signal: AbortSignal): Promise<void>
}
