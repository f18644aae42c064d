/*
 * Text from the service, from files and from the database may hold control characters: escape sequences that
 * set its title or its clipboard, and marks that turn the direction of what follows.
 */

// All of C0, DEL and C1, and the bidirectional overrides and isolates.
const OBEYED = /[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu

/**
 * A text that is safe on a terminal: line feeds stay, everything else is written as \uXXXX. JSON keeps its
 * meaning, because it holds such characters only within texts, where the escape says the same.
 */
export function printable(text: string): string {
  return text.replaceAll('\r\n', '\n').replaceAll(OBEYED, (character) => {
    if (character === '\n') return character
    if (character === '\t') return ' '
    return `\\u${character.codePointAt(0)!.toString(16).padStart(4, '0')}`
  })
}
