import { UsageError } from './errors.ts'

/** True if an address leads to this machine, so that nothing travels over a network. */
export function isLoopback(address: string): boolean {
  const { hostname } = new URL(address)
  return /^(localhost|.+\.localhost|127(\.\d+){3}|\[::1\]|\[::ffff:7f[0-9a-f]{2}:[0-9a-f]{1,4}\])$/.test(hostname)
}

/** Over plain http a key, and all that is read with it, can be read by everyone on the way. */
export function refusePlainHttp(address: string, place: string, allowed: boolean): void {
  if (allowed || !/^http:/i.test(address) || isLoopback(address)) return
  throw new UsageError(
    `${place}: got an http:// address of another machine; allowed: https://, or "allow_http: true" in the configuration ` +
      'where the network in between is trusted',
  )
}
