/** Whether output is coloured, by the conventions of NO_COLOR and FORCE_COLOR, of which the latter wins. */
export function wantsColour(isTerminal: boolean, env: NodeJS.ProcessEnv = process.env): boolean {
  if (env.FORCE_COLOR !== undefined) return !['0', 'false'].includes(env.FORCE_COLOR)
  if (env.NO_COLOR !== undefined && env.NO_COLOR !== '') return false
  return isTerminal && env.TERM !== 'dumb'
}

/** The variables that a program of the system needs, and none of ours, which may be secret. */
export function systemEnvironment(env: NodeJS.ProcessEnv = process.env): NodeJS.ProcessEnv {
  const { PATH, HOME, TMPDIR, TZ, LD_LIBRARY_PATH } = env
  return { PATH, HOME, TMPDIR, TZ, LD_LIBRARY_PATH }
}
