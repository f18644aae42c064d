// Stands for Intl.ListFormat in the bundled command, where it lists words in messages for programmers.
export class CommaList {
  format(words) {
    return [...words].join(', ')
  }
}
