import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/**
 * Has the garbage collector run now. Left alone, it lets what an answer of many megabytes was made into pile up to several
 * times the answer. It takes some hundredths of a second, so it is for large answers only.
 */
export function reclaimMemory(): void {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  collect()
}
