import * as z from 'zod'
import { similarTo } from '../text.ts'
import { configSchema } from './schema.ts'

/* The settings by their names, as the schema has them: for hints at what was meant, and for what must mention every one. */

/** A setting that holds a value: "source.page_limit", "projects[].id", "labels.brands.*.own". */
interface Setting {
  path: string
  schema: z.core.$ZodType
}

export function everySetting(): Setting[] {
  return settingsOf(configSchema, '')
}

function settingsOf(schema: z.core.$ZodType, path: string): Setting[] {
  const inner = unwrapped(schema)
  if (inner instanceof z.ZodObject) {
    return Object.entries(inner.shape).flatMap(([name, field]) =>
      settingsOf(field, path === '' ? name : `${path}.${name}`),
    )
  }
  const element = inner instanceof z.ZodArray ? unwrapped(inner.element) : undefined
  if (element instanceof z.ZodObject) return settingsOf(element, `${path}[]`)
  if (inner instanceof z.ZodRecord && unwrapped(inner.valueType) instanceof z.ZodObject)
    return settingsOf(inner.valueType, `${path}.*`)
  return [{ path, schema }]
}

/** Without what makes it optional, gives it a default or prepares its value. */
function unwrapped(schema: z.core.$ZodType): z.core.$ZodType {
  const { innerType } = schema._zod.def as { innerType?: z.core.$ZodType }
  if (innerType !== undefined) return unwrapped(innerType)
  if (schema instanceof z.ZodPipe) return unwrapped(schema.in instanceof z.ZodTransform ? schema.out : schema.in)
  return schema
}

function namesIn(group: readonly PropertyKey[]): string[] {
  const inGroup = everySetting()
    .map(({ path }) => path.replaceAll('[]', '.[]').split('.'))
    .filter((steps) => group.every((step, index) => ['[]', '*', String(step)].includes(steps[index] ?? '')))
  return inGroup.map((steps) => steps[group.length] ?? '')
}

/** The setting that was probably meant by an unknown name: one of the same group, or one of another group. */
export function settingLike(path: readonly PropertyKey[], name: string): string | undefined {
  const place = path.length === 0 ? '' : `${path.join('.')}.`
  const beside = similarTo(name, namesIn(path))
  if (beside !== undefined) return `${place}${beside}`
  const groups = everySetting().map((setting) => setting.path)
  const last = (text: string) => text.slice(text.lastIndexOf('.') + 1)
  const found = similarTo(name, groups.map(last))
  return found === undefined ? undefined : groups.find((text) => last(text) === found)
}
