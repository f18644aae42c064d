import { Ajv } from 'ajv'
import * as z from 'zod'

// Texts are as long as JavaScript says, as in zod. The schemas come from zod, so they are not checked against the schema of schemas.
const ajv = new Ajv({
  ...{ strict: false, strictNumbers: true, unicode: false, validateFormats: false, logger: false },
  ...{ meta: false, validateSchema: false },
})
const known = new WeakMap<z.ZodType, (item: unknown) => boolean>()

/**
 * A function that accepts an item only if its schema does, in a fraction of the time. It looks at the shape alone: a schema with
 * checks or changes of its own would not be what was compiled.
 */
export function compiledCheck(schema: z.ZodType): (item: unknown) => boolean {
  const check = known.get(schema) ?? compile(schema)
  known.set(schema, check)
  return check
}

function compile(schema: z.ZodType): (item: unknown) => boolean {
  try {
    return ajv.compile(z.toJSONSchema(schema, { io: 'input', target: 'draft-7' }))
  } catch {
    return () => false
  }
}
