// Compiles src/ to dist/: as modules, which is the library, and bundled, which is the command. Runs at the end of
// `npm ci`; an install without development tools keeps the dist/ it was shipped with.
import { execFileSync } from 'node:child_process'
import { cpSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const compiler = `${root}node_modules/typescript/bin/tsc`
const command = `${root}dist/command/main.cjs`

if (!existsSync(compiler)) {
  if (existsSync(command)) process.exit(0)
  console.error('visibility-sync is not built, and TypeScript is not installed: run "npm ci" without --omit=dev.')
  process.exit(1)
}
rmSync(`${root}dist`, { recursive: true, force: true })
execFileSync(process.execPath, [compiler, '-p', `${root}tsconfig.build.json`], { stdio: 'inherit' })
cpSync(`${root}src/web/assets`, `${root}dist/web/assets`, { recursive: true })

// Opening 485 files took half of the time of a command that finds nothing to do. The bundle is one file and no ES module: of such
// a one, what V8 compiled can be kept (bin/run-command.js).
const { build } = await import('esbuild')
const { metafile } = await build({
  absWorkingDir: root,
  entryPoints: { main: 'src/main.ts', keeper: 'src/warehouse/embedded/keeper.ts' },
  outdir: 'dist/command',
  bundle: true,
  format: 'cjs',
  outExtension: { '.js': '.cjs' },
  platform: 'node',
  target: 'node20',
  sourcemap: true,
  sourcesContent: false,
  // Less text to read at each start. Names stay, so that a stack says what it did before.
  minifyWhitespace: true,
  minifySyntax: true,
  legalComments: 'none',
  // Parts of got for what is never asked of it: HTTP/2 and a cache. Loading them took a tenth of a short command.
  alias: {
    'http2-wrapper': './scripts/build/without-http2.mjs',
    'cacheable-request': './scripts/build/without-cache.mjs',
  },
  metafile: true,
  logLevel: 'warning',
  // Asking which runtime it is, pg would load the fetch API of Node 20. got has a list of words put into English when it is
  // loaded, for which Node reads its locales: a twentieth of a short command.
  define: {
    navigator: '{"userAgent":"Node.js"}',
    'Intl.ListFormat': 'CommaList',
    'import.meta.url': 'bundleUrl',
  },
  inject: ['./scripts/build/comma-list.mjs'],
  // What V8 kept of a script cannot import, so packages outside are required.
  supported: { 'dynamic-import': false },
  // Used by few commands, found on disk by their names, or optional.
  external: ['fastify', '@fastify/*', 'nodemailer', 'pg-boss', 'prom-client', 'pg-native'],
  banner: { js: "const bundleUrl = require('node:url').pathToFileURL(__filename).href;" },
})
writeFileSync(`${root}dist/command/LICENSES.txt`, licences(Object.keys(metafile.inputs)))
writeFileSync(`${root}dist/command/help.txt`, execFileSync(process.execPath, [command, '--help'], { encoding: 'utf8' }))

/** The licences of the packages whose code is in the bundle. */
function licences(inputs) {
  const folders = new Set(
    inputs.flatMap((input) => /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/.exec(input)?.[0] ?? []),
  )
  return [...folders]
    .sort()
    .map((folder) => {
      const { name, version, license } = JSON.parse(readFileSync(`${root}${folder}/package.json`, 'utf8'))
      const file = readdirSync(root + folder).find((entry) => /^licen[cs]e/i.test(entry))
      const text = file === undefined ? `License: ${license}` : readFileSync(`${root}${folder}/${file}`, 'utf8').trim()
      return `${name} ${version}\n\n${text}\n`
    })
    .join(`\n${'-'.repeat(80)}\n\n`)
}
