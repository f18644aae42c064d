import { createHash, createHmac, pbkdf2Sync, randomBytes } from 'node:crypto'
import { chmodSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { codeOf } from '../../core/errors.ts'

/** The role of the program in its embedded Postgres. */
export const ROLE = 'visibility'
const LINE = /^127\.0\.0\.1:[^:\n]+:[^:\n]+:visibility:([^\n]+)$/m

/** Keeps the password of our role in the format of libpq, so that PGPASSFILE=… is all that psql and JDBC need. */
export function passwordFile(folder: string): string {
  return join(folder, 'pgpass')
}

/** The password in the file, or undefined if there is none. */
export function readPassword(folder: string): string | undefined {
  try {
    const found = LINE.exec(readFileSync(passwordFile(folder), 'utf8'))?.[1]
    // Colons and backslashes are escaped in such files; people may have chosen a password of their own.
    return found?.replaceAll(/\\(.)/g, '$1')
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined
    throw error
  }
}

/** The password in the file; a new one if there is none. */
export function ensurePassword(folder: string): string {
  const present = readPassword(folder)
  const path = passwordFile(folder)
  if (present !== undefined) {
    chmodSync(path, 0o600)
    return present
  }
  const password = randomBytes(24).toString('base64url')
  const lines = ['127.0.0.1', 'localhost'].map((host) => `${host}:*:*:${ROLE}:${password}\n`)
  writePrivate(path, lines.join(''))
  return password
}

/** Writes a file that appears whole and that only its owner can read. */
export function writePrivate(path: string, text: string, own: (path: string) => void = () => {}): void {
  const draft = `${path}.${randomBytes(4).toString('hex')}`
  try {
    writeFileSync(draft, text, { mode: 0o600 })
    own(draft)
    renameSync(draft, path)
  } finally {
    rmSync(draft, { force: true })
  }
}

export function digestOf(password: string): string {
  return createHash('sha256').update(password).digest('hex')
}

/** What Postgres keeps instead of a password (RFC 5803), so that the password itself never reaches a statement. */
export function scramVerifier(password: string): string {
  const iterations = 4096
  const salt = randomBytes(16)
  const salted = pbkdf2Sync(password, salt, iterations, 32, 'sha256')
  const keyed = (text: string) => createHmac('sha256', salted).update(text).digest()
  const stored = createHash('sha256').update(keyed('Client Key')).digest('base64')
  return `SCRAM-SHA-256$${iterations}:${salt.toString('base64')}$${stored}:${keyed('Server Key').toString('base64')}`
}
