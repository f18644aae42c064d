import { readdirSync, readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { shownText } from '../../core/config/secrets.ts'
import { UsageError } from '../../core/errors.ts'
import { packageFile } from '../../core/package-files.ts'
import { createRedactor } from '../../core/redactor.ts'
import { didYouMean } from '../../core/text.ts'
import type { Session } from '../session.ts'
import { renderTable } from '../table.ts'

const DOCS = packageFile('docs/')

export async function help(session: Session, _options: object, topic?: string): Promise<number> {
  const pages = readdirSync(DOCS, { recursive: true, encoding: 'utf8' }).filter((path) => /(?<!README)\.md$/.test(path))
  const topics = pages.sort().map((path) => {
    const text = readFileSync(new URL(path, DOCS), 'utf8')
    return { topic: basename(path, '.md'), title: text.slice(2, text.indexOf('\n')), text }
  })
  if (topic === undefined) {
    const table = renderTable({ rows: topics }, [
      { title: 'topic', value: (row) => row.topic },
      { title: 'page', value: (row) => row.title },
    ])
    const listed = topics.map(({ text: _text, ...row }) => row)
    session.print({ topics: listed }, [
      table,
      '',
      '"npx visibility-sync help TOPIC" prints a page, "COMMAND --help" options.',
    ])
    return 0
  }
  const page = topics.find((one) => one.topic === topic)
  if (page === undefined) {
    const meant = didYouMean(
      topic,
      topics.map((one) => one.topic),
    )
    throw new UsageError(
      `help: got ${shownText(topic)}; allowed: a topic that "npx visibility-sync help" lists${meant}`,
    )
  }
  // Its examples are no secrets, even if one of them is the key in the environment.
  session.print(page, page.text.replaceAll(/^ *<!--.*-->\n/gm, '').trimEnd(), createRedactor())
  return 0
}
