// Runs the bundled command, with what V8 compiled of it in an earlier run: to compile it takes a quarter of the CPU time of a run
// that finds nothing new. Node has such a cache of its own only since version 22, and refuses what is in it once the command has
// changed a flag of V8.
const { createHash, randomUUID } = require('node:crypto')
const fs = require('node:fs')
const { createRequire } = require('node:module')
const { dirname, join } = require('node:path')
const { pathToFileURL } = require('node:url')
const { cachedDataVersionTag, setFlagsFromString } = require('node:v8')
const { Script } = require('node:vm')

// As Node wraps a CommonJS module, but on a line of its own, so that places in the bundle are those that its map has.
const HEAD = '(function (exports, require, module, __filename, __dirname) {\n'
const TAIL = '\n})'
const DIGEST_BYTES = 32
// V8 has a tag for each combination of its flags. Those of the last few are kept.
const MOST_FILES = 4
const WRITABLE_BY_OTHERS = 0o022

/** @param file the bundle  @param isTypical whether this run needs what most runs need */
exports.runCommand = (file, isTypical) => {
  const bundle = fs.readFileSync(file)
  const tag = cachedDataVersionTag()
  const folder = join(dirname(file), '../compiled')
  const cache = join(folder, `command-${process.version}-${process.arch}-${tag}`)
  const cachedData = ifPossible(() => readKept(cache, file, bundle))
  const script = new Script(HEAD + bundle.toString() + TAIL, {
    // As an address, in which there are no spaces: stacks are mapped to the sources by it.
    filename: pathToFileURL(file).href,
    lineOffset: -1,
    ...(cachedData && { cachedData }),
  })
  if (isTypical && (cachedData === undefined || script.cachedDataRejected)) {
    process.on('exit', (code) => {
      if (code === 0) ifPossible(() => keepCompiled(script, { bundle, folder, cache, tag }))
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
  // Not with its parents: the package may have been removed while the command ran.
  if (!fs.existsSync(folder)) fs.mkdirSync(folder, { mode: 0o755 })
  removeAllBut(folder, MOST_FILES - 1)
  const compiled = script.createCachedData()
  const draft = `${cache}.${randomUUID()}`
  try {
    fs.writeFileSync(draft, Buffer.concat([digestOf(bundle, compiled), compiled]), { flag: 'wx', mode: 0o644 })
    fs.renameSync(draft, cache)
  } catch {
    fs.rmSync(draft, { force: true })
  }
}

/** Removes the oldest files, among them what others left unfinished. */
function removeAllBut(folder, count) {
  const files = fs.readdirSync(folder).map((name) => join(folder, name))
  const ages = new Map(files.map((file) => [file, fs.lstatSync(file).mtimeMs]))
  files.sort((one, other) => ages.get(other) - ages.get(one))
  for (const file of files.slice(count)) fs.rmSync(file, { force: true })
}

/**
 * What was kept, unless it is damaged or of another bundle, which V8 would not always notice, or someone else could have put
 * it there: it is run like the bundle.
 */
function readKept(cache, file, bundle) {
  // Without waiting, should it be a pipe.
  const descriptor = fs.openSync(cache, fs.constants.O_RDONLY | (fs.constants.O_NONBLOCK ?? 0))
  try {
    const found = fs.fstatSync(descriptor)
    const trusted = [0, process.getuid?.(), fs.statSync(file).uid]
    if (!found.isFile() || !trusted.includes(found.uid) || (found.mode & WRITABLE_BY_OTHERS) !== 0) return undefined
    const bytes = fs.readFileSync(descriptor)
    const compiled = bytes.subarray(DIGEST_BYTES)
    return digestOf(bundle, compiled).equals(bytes.subarray(0, DIGEST_BYTES)) ? compiled : undefined
  } finally {
    fs.closeSync(descriptor)
  }
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
