import { BadPageError } from '../../core/errors.ts'
import { tableName } from '../../warehouse/connect.ts'
import { withRetries } from '../../warehouse/retry.ts'
import type { Run } from '../run/run.ts'

/** Every answer belongs to a prompt and a model, so every row of a report by them has one. */
const ALWAYS_SET = new Set(['prompt_id', 'model_id', 'chat_id'])

/** Where the warehouse shows that a project has values of a dimension that not every row needs to have. */
const SHOWN_BY: Record<string, { table: string; condition: string }> = {
  topic_id: { table: 'prompts', condition: 'topic_id is not null and removed_at is null' },
  tag_id: { table: 'prompt_tags', condition: 'true' },
  country_code: { table: 'prompts', condition: 'country_code is not null and removed_at is null' },
  model_channel_id: { table: 'chats', condition: 'model_channel_id is not null' },
}

interface Answered {
  projectId: string
  about: string
  /** Dimensions that were asked for and that no row has. */
  dimensions: readonly string[]
}

/** Refuses an answer of which no row has a dimension that was asked for, although the project has values for it. */
export async function refuseIgnoredDimensions(
  { warehouse, signal }: Run,
  { projectId, about, dimensions }: Answered,
): Promise<void> {
  for (const dimension of dimensions) {
    const shown = SHOWN_BY[dimension]
    const hasValues = async () => {
      const { rows } = await warehouse.pool.query<{ found: boolean }>(
        `select exists (select from ${tableName(warehouse, shown!.table)} where project_id = $1 and ${shown!.condition}) as found`,
        [projectId],
      )
      return rows[0]!.found
    }
    const isIgnored =
      ALWAYS_SET.has(dimension) || (shown !== undefined && (await withRetries(warehouse, signal, hasValues)))
    if (isIgnored) throw new BadPageError(`${about}: the service ignored the dimension ${dimension}`)
  }
}
