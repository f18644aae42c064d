const EXCERPT_BYTES = 2000

/** Stands for an item that is sound JSON but too large to be worth parsing: it can only be rejected. */
export class LargeItem {
  private constructor(
    readonly bytes: number,
    private readonly excerpt: string,
  ) {}

  static at(answer: Buffer, start: number, end: number): LargeItem {
    return new LargeItem(end - start, answer.toString('utf8', start, start + EXCERPT_BYTES))
  }

  /** How it begins. */
  toJSON(): string {
    return `${this.excerpt}… (cut: ${this.bytes} bytes)`
  }
}
