/* Numbers as people read them: no digit that says nothing. */

export type Unit = 'share' | 'position' | 'score'

const NUMBERS = new Intl.NumberFormat('en-US')
const NONE = '–'

/** "1,204". */
export const whole = (value: number) => NUMBERS.format(Math.round(value))

/** "34 %", "34.2 %"; a share that is not zero is never shown as zero. */
export function percent(share: number | null): string {
  if (share === null) return NONE
  if (share > 0 && share < 0.0005) return '< 0.1 %'
  return `${trimmed(share * 100, 1)} %`
}

/** "+2.3 points": the change of a share. */
export const points = (change: number) => `${signed(change * 100, 1)} points`

/** "+2.3", "−0.4", "0". */
export function signed(value: number, digits: number): string {
  const text = trimmed(Math.abs(value), digits)
  return text === '0' ? '0' : `${value > 0 ? '+' : '−'}${text}`
}

export function measured(value: number | null, unit: Unit): string {
  if (value === null) return NONE
  return unit === 'share' ? percent(value) : trimmed(value, digitsOf(value))
}

export function changed(change: number, unit: Unit): string {
  return unit === 'share' ? points(change) : signed(change, 2)
}

// Scales of the service may end at 1 or at 100.
const digitsOf = (value: number) => (Math.abs(value) < 10 ? 2 : 1)

function trimmed(value: number, digits: number): string {
  return String(Number(value.toFixed(digits))).replace('-', '−')
}
