import { addDays, daysIn, type Range } from '../../src/core/day.ts'
import type { FaultSettings } from '../../src/reference/change.ts'
import { seededRandom } from '../../src/reference/names.ts'
import type { Setup } from './setup.ts'

/* What random schedules are made of: a schedule is its seed. */

export interface Dice {
  whole(from: number, to: number): number
  chance(probability: number): boolean
  pick<T>(items: readonly T[]): T
}

export function diceOf(seed: number): Dice {
  const random = seededRandom(seed * 7919)
  return {
    whole: (from, to) => from + Math.floor(random() * (to - from + 1)),
    chance: (probability) => random() < probability,
    pick: (items) => items[Math.floor(random() * items.length)]!,
  }
}

export function randomFaults(dice: Dice): FaultSettings {
  const sometimes = (most: number) => (dice.chance(0.3) ? dice.whole(1, most) / 100 : 0)
  return {
    seed: dice.whole(1, 1e6),
    rate_limit: dice.chance(0.2) ? dice.whole(5, 30) : null,
    rate_window_ms: 300,
    rate_headers: dice.chance(0.8),
    retry_after: dice.chance(0.3),
    latency_ms: dice.chance(0.5) ? dice.whole(1, 60) : 0,
    server_error: sometimes(40),
    reset: sometimes(30),
    truncate: sometimes(20),
    cut_json: sometimes(20),
    html: sometimes(20),
    wrong_shape: sometimes(10),
    unstable_order: dice.chance(0.4),
    extra_fields: dice.chance(0.3),
    malformed: sometimes(8),
    duplicate_rows: sometimes(20),
    empty: dice.chance(0.08),
    limit_max: dice.chance(0.15) ? dice.whole(40, 200) : null,
    silent_cap: dice.chance(0.1) ? dice.pick([100, 200]) : null,
    refuse_filters: dice.chance(0.15),
    ignore_filters: dice.chance(0.1),
    totals: dice.pick(['camel', 'snake', 'none', 'wrong']),
    hang: dice.chance(0.15) ? dice.whole(1, 8) / 100 : 0,
  }
}

/** Something that happens to the data of the service. */
export function mutate(
  setup: Setup,
  dice: Dice,
  project: Setup['service']['world']['projects'][number],
  range: Range,
): string {
  const { world } = setup.service
  const kind = dice.pick(['rewrite', 'rewrite', 'delete prompt', 'rename', 'drop chat', 'add prompt'] as const)
  const day = dice.pick(daysIn(range))
  if (kind === 'rewrite')
    world.rewriteDays(
      project,
      [day, addDays(day, 1)].filter((date) => date <= range.to),
    )
  else if (kind === 'delete prompt' && project.prompts.length > 2)
    world.deletePrompt(project, dice.pick(project.prompts).id)
  else if (kind === 'rename')
    world.renameBrand(project, dice.pick(project.brands).id, `Name ${dice.whole(1, 999)} "quoted"`)
  else if (kind === 'drop chat') {
    const chats = world.chatsOf(project, day)
    if (chats.length > 1) world.dropChat(dice.pick(chats).id)
  } else if (kind === 'add prompt') {
    const [like] = project.prompts
    world.addPrompt(project, {
      ...like!,
      id: world.newId('pr', 'new', dice.whole(1, 1e9)),
      text: `New prompt ${dice.whole(1, 1e6)}`,
    })
  }
  return `${kind} ${day}`
}
