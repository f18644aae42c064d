import { escapeLiteral, type Pool, type PoolClient, type QueryResult } from 'pg'

/** A statement with its values written into it, and how its rows are read. */
export interface Statement<Answer> {
  sql: string
  read(rows: Record<string, unknown>[]): Answer
}

/** A statement for each of the answers. */
export type Statements<Answers extends unknown[]> = { [Index in keyof Answers]: Statement<Answers[Index]> }

/**
 * Runs several statements in one message. Each is still a statement of its own, which sees what was committed before it
 * began: what follows a lock sees what its last holder wrote.
 */
export async function runBatch<Answers extends unknown[]>(
  client: PoolClient | Pool,
  ...statements: Statements<Answers>
): Promise<Answers> {
  const answer = (await (client as PoolClient).query(statements.map(({ sql }) => sql).join(';\n'))) as
    | QueryResult
    | QueryResult[]
  // A single statement has a single result.
  const results = [answer].flat()
  return statements.map(({ read }, index) => read(results[index]!.rows as Record<string, unknown>[])) as Answers
}

/** A text or number as it is written in a statement. */
export function literal(value: string | number): string {
  return typeof value === 'number' ? String(value) : escapeLiteral(value)
}
