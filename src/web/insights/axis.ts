import type { Unit } from './format.ts'

export interface Axis {
  min: number
  max: number
  ticks: number[]
  /** How far down a value lies, 0 to 1. */
  down(value: number): number
}

const STEPS = [1, 2, 2.5, 5, 10]
const TICKS = 4

/** Shares begin at zero, positions at 1, which is on top; a score has a scale of its own. */
export function axisOf(values: readonly number[], unit: Unit): Axis {
  const [lowest, highest] = [Math.min(...values), Math.max(...values)]
  if (unit === 'share') return between(0, Math.min(1, Math.max(highest, 0.02)), 1)
  if (unit === 'position') {
    const axis = between(1, Math.max(highest, 2), Infinity)
    return { ...axis, down: (value) => 1 - axis.down(value) }
  }
  const room = Math.max((highest - lowest) * 0.15, Math.abs(highest) * 0.02, 0.01)
  return between(lowest - room, highest + room, Infinity)
}

function between(min: number, max: number, most: number): Axis {
  const step = niceStep((max - min) / TICKS)
  const first = Math.floor(min / step + 1e-9) * step
  // Positions begin at 1, whatever the step.
  const from = min === 1 ? 1 : first
  const to = Math.min(most, from + Math.ceil((max - from) / step - 1e-9) * step)
  const count = Math.floor((to - from) / step + 1e-9)
  const ticks = Array.from({ length: count + 1 }, (_, index) => rounded(from + index * step))
  return { min: from, max: to, ticks, down: (value) => 1 - (value - from) / (to - from) }
}

function niceStep(rough: number): number {
  const power = 10 ** Math.floor(Math.log10(rough))
  return power * STEPS.find((step) => step * power >= rough * 0.999)!
}

const rounded = (value: number) => Number(value.toPrecision(12))
