/* Mutants inside SQL: conditions, comparisons, constants, and terms of `where` that are left out. */

const STATEMENT =
  /(^|[\s('`])(select\s|insert into\s|update \S+ (as )?\w* ?set\s|delete from\s|merge into\s|where\s|order by\s|on conflict)/
const COMPARISON = /[\w.$})\]]+ (=|<>|<=|>=|<|>|is|is not) (any\b|all\b|null\b|distinct\b|[$\w(]+[.(\w])/

const REPLACEMENTS = [
  [/\bor\b(?! replace)/g, 'and'],
  [/(?<=\s)<=(?=\s)/g, '<'],
  [/(?<=\s)>=(?=\s)/g, '>'],
  [/(?<=\s)<>(?=\s)/g, '='],
  [/(?<=\s)<(?=\s)/g, '<='],
  [/(?<=\s)>(?=\s)/g, '>='],
  [/\bis not (?=null|distinct)/g, 'is '],
  [/\bis (?=null|distinct)/g, 'is not '],
  [/\bnot exists\b/g, 'exists'],
  [/(?<!\b(not|if) )\bexists\b/g, 'not exists'],
  [/\bnot between\b/g, 'between'],
  [/\bleast\b/g, 'greatest'],
  [/\bgreatest\b/g, 'least'],
  [/\bmin\(/g, 'max('],
  [/\bmax\(/g, 'min('],
  [/ desc\b/g, ''],
  [/\btrue\b/g, 'false'],
  [/\bfalse\b/g, 'true'],
  [/\b(left|full) join\b/g, 'join'],
  [/\bunion all\b/g, 'union'],
  [/\bdistinct\b(?! (on|from)\b)/g, ''],
  [/(?<![$\w.§-])\d+(?![\w.§])/g, (number) => String(Number(number) + 1)],
]

/** What a term of a condition ends with, at its own depth of parentheses. */
const END_OF_TERM = /^(and|or|group by|order by|having|limit|returning|union|on conflict|when|then|for update|window)\b/

/** The mutants of a literal of TypeScript, with its quotes. A tagged one is SQL, others are if they look like it. */
export function sqlMutants(literal, isTagged) {
  if (!isTagged && !STATEMENT.test(literal) && !COMPARISON.test(literal)) return []
  const sql = mask(literal)
  const mutants = []
  const add = (start, end, replacement) => mutants.push({ start, end, replacement })

  for (const [pattern, replacement] of REPLACEMENTS)
    for (const { 0: found, index } of sql.matchAll(pattern))
      add(index, index + found.length, typeof replacement === 'string' ? replacement : replacement(found))

  for (const { index } of sql.matchAll(/(?<=\s)=(?=\s)/g)) if (isComparison(sql, index)) add(index, index + 1, '<>')

  for (const { 0: word, index } of sql.matchAll(/\b(where|and)\b/g)) {
    if (word === 'and' && isOfBetween(sql, index)) continue
    if (word === 'and') add(index, index + 3, 'or')
    const from = index + word.length
    const end = endOfTerm(sql, from)
    if (sql.slice(from, end).trim() === '') continue
    if (word === 'where') add(from, end, ' true')
    else add(index, end, '')
  }
  return mutants
}

/** The same text with nothing in comments, in quotes and in `${}`: what is there is not SQL of this literal. */
function mask(literal) {
  const blank = (text) => '§'.repeat(text.length)
  let sql = ''
  for (let at = 0; at < literal.length; ) {
    if (literal.startsWith('${', at)) {
      let end = at + 2
      for (let depth = 1; depth > 0 && end < literal.length; end++)
        depth += literal[end] === '{' ? 1 : literal[end] === '}' ? -1 : 0
      sql += blank(literal.slice(at, end))
      at = end
    } else {
      const [skipped] = /^(--[^\n]*|\/\*[\s\S]*?\*\/|'[^'\n]*'|"[^"\n]*")/.exec(at === 0 ? '' : literal.slice(at)) ?? [
        '',
      ]
      sql += skipped === '' ? literal[at] : blank(skipped)
      at += skipped.length || 1
    }
  }
  return sql
}

/** Whether an `=` compares: the last word before it that could say so is not `set`. */
function isComparison(sql, index) {
  const words = sql.slice(0, index).match(/\b(set|where|and|or|on|when|having|using|filter|select)\b/g)
  return words?.at(-1) !== 'set'
}

function isOfBetween(sql, index) {
  const words = sql.slice(0, index).match(/\b(between|and)\b/g)
  let isOpen = false
  for (const word of words ?? []) isOpen = word === 'between'
  return isOpen
}

function endOfTerm(sql, from) {
  let depth = 0
  let isBetween = false
  for (let at = from; at < sql.length; at++) {
    const char = sql[at]
    if (char === '(') depth++
    else if (char === ')' && --depth < 0) return at
    else if (depth > 0 || /\w/.test(sql[at - 1])) continue
    else if (char === ';' || at === sql.length - 1) return at
    else if (/^between\b/.test(sql.slice(at))) isBetween = true
    else if (END_OF_TERM.test(sql.slice(at))) {
      if (!isBetween || !sql.startsWith('and', at)) return at
      isBetween = false
    }
  }
  return sql.length
}
