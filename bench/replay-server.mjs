// node bench/replay-server.mjs <address> <path>…: reads each path once and answers with the same bytes from then on.
import { createServer, get } from 'node:http'

const [address, ...paths] = process.argv.slice(2)
const answers = new Map()
for (const path of paths) {
  answers.set(
    path,
    await new Promise((done) =>
      get(address + path, { headers: { 'accept-encoding': 'gzip' } }, (response) => {
        const pieces = []
        response.on('data', (piece) => pieces.push(piece))
        response.on('end', () => done({ headers: response.headers, body: Buffer.concat(pieces) }))
      }),
    ),
  )
}
const server = createServer(({ url }, response) => {
  const { headers, body } = answers.get(url)
  for (const name of ['content-type', 'content-encoding']) if (headers[name]) response.setHeader(name, headers[name])
  response.end(body)
})
server.listen(0, '127.0.0.1', () => process.stdout.write(`at ${server.address().port} .\n`))
