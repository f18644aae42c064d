import { spawnSync } from 'node:child_process'
import { expect, test } from '@jest/globals'

/** How large the memory for new values becomes, in MB, in a process that makes many of them. */
function grownTo(prepare: string): number {
  const script = `
    import { getHeapSpaceStatistics } from 'node:v8'
    ${prepare}
    let kept = []
    for (let turn = 0; turn < 600; turn++) {
      for (let index = 0; index < 5000; index++) {
        kept.push({ index, list: [index] })
        if (kept.length > 50_000) kept = kept.slice(25_000)
      }
      await new Promise(setImmediate)
    }
    console.log(getHeapSpaceStatistics().find(({ space_name }) => space_name === 'new_space').space_size / 2 ** 20)`
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', script], {
    encoding: 'utf8',
  })
  expect(stderr).toBe('')
  return Number(stdout)
}

test('the memory for new values stays at 16 MB, where it would grow beyond', () => {
  const address = new URL('../dist/core/cap-semi-space.js', import.meta.url)
  const bounded = grownTo(`import { capSemiSpace } from ${JSON.stringify(address.href)}\ncapSemiSpace()`)
  expect(bounded).toBeLessThanOrEqual(16)
  expect(grownTo('')).toBeGreaterThan(16)
})
