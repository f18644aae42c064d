import { join } from 'node:path'

/** The data folder of Postgres in our folder. */
export function dataPath(folder: string): string {
  return join(folder, 'postgres')
}

/** The file that says which process runs the server. */
export function lockPath(folder: string): string {
  return join(folder, 'postgres.lock')
}
