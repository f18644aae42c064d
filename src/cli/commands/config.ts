import { explainConfig } from '../../core/config/load.ts'
import type { Session } from '../session.ts'
import { renderTable, wrap } from '../table.ts'

export async function config(session: Session, options: { changed?: boolean }): Promise<number> {
  const { config: loaded, width } = session
  const all = explainConfig(loaded)
  const settings = options.changed ? all.filter(({ from }) => from !== 'default') : all
  const table = renderTable({ rows: loaded.redactor.value(settings), width }, [
    { title: 'setting', value: ({ setting }) => setting, isWhole: true },
    { title: 'value', value: ({ value }) => shown(value) },
    { title: 'from', value: ({ from }) => from },
  ])
  const file = loaded.file ?? 'none; defaults and variables'
  session.print({ file: loaded.file ?? null, settings }, [wrap(file, width, 'File: '), '', table])
  return 0
}

function shown(value: unknown): string {
  if (value === null) return '–'
  return typeof value === 'string' ? value : JSON.stringify(value)
}
