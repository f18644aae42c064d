import type { TemplatePaths } from '../../streams/stream.ts'
import { SegmentMemory } from '../packed-rows.ts'
import type { InferredTemplate } from './infer-template.ts'
import { InternPool, type Piece, TextBudget } from './intern-pool.ts'

const TEMPLATES_KEPT = 16

/** Rows with the same fields in the same order: what is written between their values, and what the values may be. */
export interface RowTemplate {
  /** One before each field and one after the last. */
  pieces: Piece[]
  fields: Field[]
  /** Columns for which such rows have no field. */
  missing: number[]
}

export interface Field {
  column: number
  texts: InternPool
  /** The kinds of values that were accepted in it. */
  accepts: number
}

export const ACCEPTS_TEXT = 1
export const ACCEPTS_NUMBER = 2
export const ACCEPTS_NULL = 4

/** Learned from answers of one stream: shapes of rows, and texts that were accepted in their fields. */
export class TemplateCache {
  readonly templates: RowTemplate[] = []
  private readonly pools = new Map<string, InternPool>()
  private readonly budget = new TextBudget()

  constructor(private readonly paths: readonly string[]) {}

  templateOf({ pieces, paths }: InferredTemplate): RowTemplate | undefined {
    const known = this.templates.find((template) =>
      template.pieces.every((piece, index) => pieces[index]?.bytes.equals(piece.bytes)),
    )
    if (known !== undefined || this.templates.length >= TEMPLATES_KEPT) return known
    const template: RowTemplate = {
      pieces,
      fields: paths.map((path) => ({
        column: this.paths.indexOf(path),
        texts: this.poolOf(path),
        accepts: 0,
      })),
      missing: this.paths.flatMap((path, column) => (paths.includes(path) ? [] : [column])),
    }
    this.templates.push(template)
    return template
  }

  poolOf(path: string): InternPool {
    let pool = this.pools.get(path)
    if (pool === undefined) {
      pool = new InternPool(this.pools.size, this.budget)
      this.pools.set(path, pool)
    }
    return pool
  }

  get isFull(): boolean {
    return [...this.pools.values()].some(({ isFull }) => isFull)
  }
}

/** Answers to one stream teach each other, as long as a process works for it. Each session has its own. */
export class TemplateCaches {
  /** Memory for the rows of one answer after the other. */
  readonly segments = new SegmentMemory()
  private readonly caches = new Map<TemplatePaths, TemplateCache>()

  of(templatePaths: TemplatePaths): TemplateCache {
    const known = this.caches.get(templatePaths)
    if (known !== undefined && !known.isFull) return known
    const cache = new TemplateCache(templatePaths.paths)
    this.caches.set(templatePaths, cache)
    return cache
  }
}
