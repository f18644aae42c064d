// Compiles src/ to dist/: as modules, which is the library, and bundled, which is the command. Runs at the end of
// `npm ci`; an install without development tools keeps the dist/ it was shipped with. With --if-changed it builds only if a
// file is newer than the last build.
import { execFileSync } from 'node:child_process'
import { cpSync, existsSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const compiler = `${root}node_modules/typescript/bin/tsc`
const command = `${root}dist/command/main.cjs`
// Replaces dist/ at the end, so that commands can start during a build, and two builds do not mix their files.
const draft = `dist-new-${process.pid}`

if (!existsSync(compiler)) {
  if (existsSync(command)) process.exit(0)
  console.error('visibility-sync is not built, and TypeScript is not installed: run "npm ci" without --omit=dev.')
  process.exit(1)
}
if (process.argv.includes('--if-changed') && isUpToDate()) process.exit(0)
const old = `${draft}-old`
process.on('exit', removeDrafts)
removeDrafts()
const flags = ['-p', `${root}tsconfig.build.json`, '--outDir', root + draft]
execFileSync(process.execPath, [compiler, ...flags], { stdio: 'inherit' })
cpSync(`${root}src/web/assets`, `${root}${draft}/web/assets`, { recursive: true })

// Few files: opening 485 took half of the time of a command that finds nothing to do. What is imported dynamically is apart,
// so that a command loads only what it needs. esbuild splits ES modules alone, and Node starts CommonJS modules faster.
const { build } = await import('esbuild')
const options = {
  absWorkingDir: root,
  platform: 'node',
  target: 'node20',
  outExtension: { '.js': '.cjs' },
  sourcemap: true,
  sourcesContent: false,
  // Less text to read at each start. Names stay, so that a stack says what it did before.
  minifyWhitespace: true,
  minifySyntax: true,
  legalComments: 'none',
  logLevel: 'warning',
}
const { metafile } = await build({
  ...options,
  entryPoints: { main: 'src/main.ts' },
  outdir: `${draft}/esm`,
  bundle: true,
  format: 'esm',
  splitting: true,
  metafile: true,
  external: ['pg-boss', 'pg-native'],
  // got loads it for HTTP/2, which is never used, and it creates a TLS context when it is loaded.
  alias: { 'http2-wrapper': 'node:http' },
  // Where there is no `navigator`, pg finds out with a `Response` whether it runs at Cloudflare, and so loads all of undici.
  define: { navigator: '{"userAgent":"Node.js"}' },
})
await build({
  ...options,
  entryPoints: Object.keys(metafile.outputs).filter((name) => name.endsWith('.cjs')),
  outdir: `${draft}/command`,
  format: 'cjs',
  supported: { 'dynamic-import': false },
  define: { 'import.meta.url': 'bundleUrl' },
  banner: { js: "const bundleUrl = require('node:url').pathToFileURL(__filename).href;" },
})
rmSync(`${root}${draft}/esm`, { recursive: true })
writeFileSync(`${root}${draft}/command/LICENSES.txt`, licences(Object.keys(metafile.inputs)))
// A folder that is deleted in its place would get the files of another build meanwhile. The codes say that another was faster.
move('dist', old, 'ENOENT')
move(draft, 'dist', 'ENOTEMPTY', 'EEXIST')

function move(from, to, ...ignored) {
  try {
    renameSync(root + from, root + to)
  } catch (error) {
    if (!ignored.includes(error.code)) throw error
  }
}

/** Removes the folders of this build, and those that killed builds left. */
function removeDrafts() {
  for (const name of readdirSync(root)) {
    const pid = /^dist-new-(\d+)/.exec(name)?.[1]
    if (pid !== undefined && (Number(pid) === process.pid || !isRunning(Number(pid))))
      rmSync(root + name, { recursive: true, force: true })
  }
}

function isRunning(pid) {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return error.code !== 'ESRCH'
  }
}

/** True if nothing that the build reads has changed since the last one. The licences are written last. */
function isUpToDate() {
  const built = `${root}dist/command/LICENSES.txt`
  if (!existsSync(built)) return false
  const sources = readdirSync(`${root}src`, { recursive: true }).map((name) => `src/${name}`)
  const read = ['package-lock.json', 'tsconfig.json', 'tsconfig.build.json', 'scripts/build.mjs', 'src', ...sources]
  return read.every((name) => statSync(root + name).mtimeMs < statSync(built).mtimeMs)
}

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
