import { expect, jest, test } from '@jest/globals'
import { Client } from 'pg'
import { DEFAULT_REPORTS } from '../src/core/config/schema.ts'
import { setUp } from './support/setup.ts'

/* Every statement costs the database and the network, however fast it is. */

const FOR_A_RUN = 60
// Thirteen streams.
const FOR_A_PROJECT = 100

test('a run that finds nothing new sends few statements for each project', async () => {
  const setup = await setUp({
    world: { projects: 2, prompts: 4, models: 2, brands: 3 },
    config: { reports: DEFAULT_REPORTS },
  })
  // The second run finds what is left to be done once.
  for (let run = 0; run < 2; run++) await setup.sync()
  const spy = jest.spyOn(Client.prototype, 'query')
  const count = async (projects: typeof setup.projects) => {
    spy.mockClear()
    const { outcome } = await setup.sync({ projects })
    expect(outcome).toBe('complete')
    const texts = spy.mock.calls.map(([query]) =>
      typeof query === 'string' ? query : (query as { text: string }).text,
    )
    return texts.flatMap((text) => text.split(';\n')).length
  }
  const one = await count(setup.projects.slice(0, 1))
  const two = await count(setup.projects)
  spy.mockRestore()
  expect(two - one).toBeLessThanOrEqual(FOR_A_PROJECT)
  expect(one - (two - one)).toBeLessThanOrEqual(FOR_A_RUN)
})
