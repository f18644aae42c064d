import type { Warehouse } from '../warehouse/connect.ts'
import { StdioServerTransport, serveStdio } from './sdk.ts'
import { createMcpServer, createReader, type McpOptions } from './server.ts'

interface Streams {
  stdin: NodeJS.ReadStream
  stdout: NodeJS.WriteStream
}

/** Answers on standard output until the input ends, or `stopped` resolves. */
export async function answerOnStdio(
  { stdin, stdout }: Streams,
  warehouse: Warehouse,
  options: McpOptions,
  stopped: Promise<void>,
): Promise<void> {
  const pool = createReader(warehouse)
  const transport = new StdioServerTransport(stdin, stdout)
  const handle = serveStdio(() => createMcpServer(pool, options, options.config.alerts.page_url), { transport })
  const ended = new Promise<void>((done) => stdin.once('end', done).once('close', done))
  await Promise.race([stopped, ended])
  await handle.close()
  pool.close()
}
