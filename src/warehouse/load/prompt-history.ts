import type { PoolClient } from 'pg'
import { quote } from '../../core/identifier.ts'
import type { Warehouse } from '../connect.ts'

/**
 * Keeps what each prompt of a project was, in the transaction that changed it. Prompts that did not change are only
 * compared. One that is no longer listed keeps its open row: it still means what it meant.
 */
export async function savePromptHistory(client: PoolClient, warehouse: Warehouse, projectId: string): Promise<void> {
  const table = (name: string) => quote(warehouse.schema, name)
  const now = `(
    select p.project_id, p.prompt_id, p.text, p.topic_id, p.country_code, array(
      select t.tag_id from ${table('prompt_tags')} t where t.project_id = p.project_id and t.prompt_id = p.prompt_id order by 1
    ) as tags
    from ${table('prompts')} p where p.project_id = $1
  ) n`
  const open = 'h.project_id = $1 and h.prompt_id = n.prompt_id and h.valid_to is null'
  await client.query(
    // The time at which it is seen: transactions that began earlier may come later.
    `update ${table('prompt_history')} h set valid_to = greatest(clock_timestamp(), h.valid_from + interval '1 microsecond')
     from ${now} where ${open}
       and (h.text, h.topic_id, h.tags, h.country_code) is distinct from (n.text, n.topic_id, n.tags, n.country_code)`,
    [projectId],
  )
  await client.query(
    `insert into ${table('prompt_history')} (project_id, prompt_id, text, topic_id, tags, country_code, valid_from)
     select n.project_id, n.prompt_id, n.text, n.topic_id, n.tags, n.country_code, coalesce(
       (select max(h.valid_to) from ${table('prompt_history')} h where h.project_id = $1 and h.prompt_id = n.prompt_id),
       clock_timestamp())
     from ${now} where not exists (select from ${table('prompt_history')} h where ${open})`,
    [projectId],
  )
}
