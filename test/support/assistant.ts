import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect } from '@jest/globals'
import { type CallToolResult, Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { stringify } from 'yaml'
import { temporaryFolder } from './cli.ts'
import { closeLater } from './close-later.ts'

/* A real client of the protocol, in the place of an assistant. */

export interface Told {
  text: string
  isError: boolean
  /** The structured content, which fits the output schema: the client checks it. */
  data: any
  bytes: number
}

export interface Assistant {
  client: Client
  ask(tool: string, question?: Record<string, unknown>): Promise<Told>
  /** What the server logged; empty over HTTP. */
  log(): string
  pid: number | null
  close(): Promise<void>
}

/** `auto` speaks the newest version of the protocol, `legacy` those before it. */
type Mode = 'auto' | 'legacy'
const MOST_BYTES = 8192

/** Starts the bundled command, as a client on somebody's desk does. */
export async function openOverStdio(
  { env, config }: { env: Record<string, string>; config: unknown },
  mode: Mode = 'auto',
): Promise<Assistant> {
  const { path } = temporaryFolder()
  const file = join(path, 'sync.yaml')
  writeFileSync(file, stringify(config))
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [fileURLToPath(new URL('../../bin/visibility-sync.js', import.meta.url)), 'mcp'],
    env: { PATH: process.env.PATH ?? '', HOME: path, ...env, VISIBILITY_CONFIG: file },
    cwd: path,
    stderr: 'pipe',
  })
  let log = ''
  transport.stderr!.on('data', (chunk: Buffer) => {
    log += chunk.toString()
  })
  return connect(transport, mode, () => log)
}

export function openOverHttp(url: string, token: string, mode: Mode = 'auto'): Promise<Assistant> {
  const headers = { authorization: `Bearer ${token}` }
  return connect(new StreamableHTTPClientTransport(new URL(`${url}/mcp`), { requestInit: { headers } }), mode, () => '')
}

async function connect(
  transport: StdioClientTransport | StreamableHTTPClientTransport,
  mode: Mode,
  log: () => string,
): Promise<Assistant> {
  const client = new Client({ name: 'a test', version: '1' }, { versionNegotiation: { mode } })
  // What is on standard output and is not the protocol would come here.
  const failures: Error[] = []
  client.onerror = (error) => void failures.push(error)
  await client.connect(transport)
  return {
    client,
    log,
    pid: 'pid' in transport ? transport.pid : null,
    async ask(name, question = {}) {
      const result = (await client.callTool({ name, arguments: question })) as CallToolResult
      expect(failures).toEqual([])
      const [first] = result.content
      if (first?.type !== 'text') throw new Error('no text')
      const bytes = Buffer.byteLength(JSON.stringify(result))
      expect(bytes).toBeLessThanOrEqual(MOST_BYTES)
      return { text: first.text, isError: result.isError === true, data: result.structuredContent, bytes }
    },
    close: closeLater(() => client.close()),
  }
}
