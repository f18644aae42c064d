// What a contender costs: time, CPU of each process, peak memory, WAL and dead rows.
import { readdirSync, readFileSync } from 'node:fs'

const TICKS_PER_SECOND = 100

/** CPU seconds of a process and, where asked, of the children it has had. Linux only; 0 elsewhere. */
export function cpuSeconds(pid, withChildren = false) {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ')
    const [user, system, childUser, childSystem] = fields.slice(11, 15).map(Number)
    return (user + system + (withChildren ? childUser + childSystem : 0)) / TICKS_PER_SECOND
  } catch {
    return 0
  }
}

/** CPU seconds of a Postgres server: its postmaster, the children it has had, and those it has. */
export function postgresCpuSeconds(postmaster) {
  if (postmaster === undefined) return 0
  let sum = cpuSeconds(postmaster, true)
  try {
    for (const name of readdirSync('/proc').filter((entry) => /^\d+$/.test(entry))) {
      const parent = Number(readFileSync(`/proc/${name}/stat`, 'utf8').split(') ')[1].split(' ')[1])
      if (parent === postmaster) sum += cpuSeconds(Number(name))
    }
  } catch {
    // A process ended while it was being looked at.
  }
  return sum
}

/** Follows the peak memory of a process until it is asked to stop. Gives megabytes. */
export function watchMemory(pid) {
  let peak = 0
  const look = () => {
    try {
      peak = Math.max(peak, Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) / 1024)
    } catch {
      // It ended.
    }
  }
  const timer = setInterval(look, 20)
  look()
  return () => {
    clearInterval(timer)
    return peak
  }
}

export function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)]
}

/** WAL position and the number of row versions that were made dead, for differences. */
export async function databaseCounters(client, table) {
  await client.query('select pg_stat_clear_snapshot()')
  const { rows } = await client.query(
    `select (pg_current_wal_lsn() - '0/0'::pg_lsn)::float8 as wal,
       coalesce((select n_tup_upd + n_tup_del from pg_stat_user_tables where schemaname = 'visibility' and relname = $1), 0)::float8 as dead`,
    [table],
  )
  return rows[0]
}
