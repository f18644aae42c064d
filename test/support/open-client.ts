import { type Client, type ClientOptions, createClient } from '../../src/source/client.ts'
import { closeLater } from './close-later.ts'

/** A client that is closed after the test. */
export function openClient(baseUrl: string, options: Partial<ClientOptions> = {}): Client {
  const client = createClient({ baseUrl, compress: false, requestsPerMinute: 100_000, ...options })
  closeLater(() => client.close())
  return client
}
