import { UsageError } from '../errors.ts'

/** `${NAME}` or `${NAME:-default}`. */
export const PLACEHOLDER = /\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}/g

/**
 * Fills `${NAME}` and `${NAME:-default}` into every text of a parsed document. It works on values, not on the file's
 * text, so a variable can never change the structure of the document.
 */
export function interpolate(value: unknown, env: NodeJS.ProcessEnv, path: string[] = []): unknown {
  if (typeof value === 'string') return fill(value, env, path)
  if (Array.isArray(value)) return value.map((item, index) => interpolate(item, env, [...path, String(index)]))
  if (typeof value === 'object' && value !== null) {
    return Object.fromEntries(
      Object.entries(value)
        .map(([key, item]) => [key, interpolate(item, env, [...path, key])] as const)
        // A variable that is set to nothing, or defaults to nothing, leaves the field out.
        .filter(([key, item]) => !(item === '' && typeof (value as Record<string, unknown>)[key] === 'string')),
    )
  }
  return value
}

function fill(text: string, env: NodeJS.ProcessEnv, path: string[]): string {
  return text.replaceAll(PLACEHOLDER, (_, variable: string, fallback: string | undefined) => {
    const found = Object.hasOwn(env, variable) ? env[variable] : undefined
    if (found !== undefined && found !== '') return found
    if (fallback !== undefined) return fallback
    throw new UsageError(`${path.join('.')}: the environment variable ${variable} is not set, and there is no default`)
  })
}
