// Runs the bundled command, with what V8 compiled of it in an earlier run: to compile it takes a quarter of the CPU time of a run
// that finds nothing new. Node has such a cache of its own only since version 22, and refuses what is in it once the command has
// changed a flag of V8.
const { createHash } = require('node:crypto')
const { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } = require('node:fs')
const { createRequire } = require('node:module')
const { dirname, join } = require('node:path')
const { pathToFileURL } = require('node:url')
const { cachedDataVersionTag, setFlagsFromString } = require('node:v8')
const { Script } = require('node:vm')

// As Node wraps a CommonJS module, but on a line of its own, so that places in the bundle are those that its map has.
const HEAD = '(function (exports, require, module, __filename, __dirname) {\n'
const TAIL = '\n})'
const DIGEST_BYTES = 32

/** @param file the bundle  @param isTypical whether this run needs what most runs need */
exports.runCommand = (file, isTypical) => {
  const bundle = readFileSync(file)
  const tag = cachedDataVersionTag()
  const folder = join(dirname(file), '../compiled')
  const cache = join(folder, `command-${tag}`)
  const cachedData = ifPossible(() => readWhole(cache, bundle))
  const script = new Script(HEAD + bundle.toString() + TAIL, {
    // As an address, in which there are no spaces: stacks are mapped to the sources by it.
    filename: pathToFileURL(file).href,
    lineOffset: -1,
    ...(cachedData && { cachedData }),
  })
  if (isTypical && (cachedData === undefined || script.cachedDataRejected)) {
    process.on('exit', (code) => {
      if (code === 0) keepCompiled(script, { bundle, folder, cache, tag })
    })
  }
  const module = { exports: {} }
  script.runInThisContext()(module.exports, createRequire(file), module, file, dirname(file))
}

/** Where the folder cannot be written, as in an image, commands go on as they did: only their start takes longer. */
function keepCompiled(script, { bundle, folder, cache, tag }) {
  // What the command may have changed (core/cap-semi-space.ts), as V8 has it by default: it refuses a cache of other flags.
  setFlagsFromString('--semi-space-growth-factor=2')
  if (cachedDataVersionTag() !== tag) return
  const draft = `${cache}.${process.pid}`
  const isKept = ifPossible(() => {
    mkdirSync(folder, { recursive: true })
    const compiled = script.createCachedData()
    writeFileSync(draft, Buffer.concat([digestOf(bundle, compiled), compiled]))
    renameSync(draft, cache)
    return true
  })
  if (!isKept) ifPossible(() => rmSync(draft, { force: true }))
}

/** V8 would not notice that it was damaged, and not always that it was made of another bundle. */
function readWhole(cache, bundle) {
  const bytes = readFileSync(cache)
  const compiled = bytes.subarray(DIGEST_BYTES)
  return digestOf(bundle, compiled).equals(bytes.subarray(0, DIGEST_BYTES)) ? compiled : undefined
}

function digestOf(bundle, compiled) {
  return createHash('sha256').update(bundle).update(compiled).digest()
}

function ifPossible(work) {
  try {
    return work()
  } catch {
    return undefined
  }
}
