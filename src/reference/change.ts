import * as z from 'zod'
import { isDay } from '../core/day.ts'
import type { World } from './world.ts'

/* Changes to the world that the live service makes too: history rewritten, things deleted and renamed. */

const project = { project_id: z.string() }

export const changeSchema = z.discriminatedUnion('action', [
  z.strictObject({ action: z.literal('rewrite_days'), ...project, days: z.array(z.string().refine(isDay)) }),
  z.strictObject({ action: z.literal('delete_prompt'), ...project, prompt_id: z.string() }),
  z.strictObject({ action: z.literal('delete_topic'), ...project, topic_id: z.string() }),
  z.strictObject({ action: z.literal('rename_brand'), ...project, brand_id: z.string(), name: z.string() }),
  z.strictObject({ action: z.literal('move_channel'), ...project, channel_id: z.string(), model_id: z.string() }),
  z.strictObject({ action: z.literal('drop_chat'), ...project, chat_id: z.string() }),
])
export type Change = z.infer<typeof changeSchema>

export function changeWorld(world: World, change: Change): void {
  const found = world.project(change.project_id)
  if (found === undefined) return
  switch (change.action) {
    case 'rewrite_days':
      return world.rewriteDays(found, change.days)
    case 'delete_prompt':
      return world.deletePrompt(found, change.prompt_id)
    case 'delete_topic':
      return world.deleteTopic(found, change.topic_id)
    case 'rename_brand':
      return world.renameBrand(found, change.brand_id, change.name)
    case 'move_channel':
      return void world.movedChannels.set(change.channel_id, change.model_id)
    case 'drop_chat':
      return world.dropChat(change.chat_id)
  }
}
