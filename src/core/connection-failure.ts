import { codeOf } from './errors.ts'

export interface ConnectionFailure {
  /** `certificate`: trying again is useless. `handshake`: the other side does not speak TLS, or broke off. */
  kind: 'connect' | 'certificate' | 'handshake'
  cause: string
}

const NO_ROUTE = 'there is no route to it'
const CONNECT: Record<string, string> = {
  ENOTFOUND: 'there is no host of this name',
  EAI_AGAIN: 'its name cannot be looked up now',
  ECONNREFUSED: 'the connection was refused: nothing listens there',
  EHOSTUNREACH: NO_ROUTE,
  ENETUNREACH: NO_ROUTE,
  EHOSTDOWN: NO_ROUTE,
  ENETDOWN: 'the network is down',
  EADDRNOTAVAIL: 'the network is not available',
}

const UNTRUSTED =
  'its certificate is not signed by an authority that is trusted here; if the authority is your own, name the file of its certificate in NODE_EXTRA_CA_CERTS'
const OTHER_HOST =
  'its certificate is for another host name: check the host in the address; NODE_EXTRA_CA_CERTS does not help'
const CERTIFICATE: Record<string, string> = {
  CERT_HAS_EXPIRED: 'its certificate has expired and must be renewed there; NODE_EXTRA_CA_CERTS does not help',
  CERT_NOT_YET_VALID: 'its certificate is not valid yet: check the clock here; NODE_EXTRA_CA_CERTS does not help',
  ERR_TLS_CERT_ALTNAME_INVALID: OTHER_HOST,
  HOSTNAME_MISMATCH: OTHER_HOST,
}
const OTHER_CERTIFICATE = /^(CERT_|SELF_SIGNED_|DEPTH_ZERO_|UNABLE_TO_|INVALID_CA|INVALID_PURPOSE)/
const HANDSHAKE = /^(EPROTO$|ERR_SSL_|ERR_TLS_)/
const CONNECT_PHASES = ['lookup', 'connect', 'secureConnect']

/** Undefined if a connection was made, or if that is not known. */
export function connectionFailure(error: unknown): ConnectionFailure | undefined {
  const code = codeOf(error) ?? ''
  const found = (kind: ConnectionFailure['kind'], cause: string) => ({ kind, cause: `${cause} (${code})` })
  if (CONNECT[code] !== undefined) return found('connect', CONNECT[code])
  if (CERTIFICATE[code] !== undefined) return found('certificate', CERTIFICATE[code])
  if (OTHER_CERTIFICATE.test(code)) return found('certificate', UNTRUSTED)
  if (HANDSHAKE.test(code)) return found('handshake', 'it does not speak TLS, or aborted the handshake')
  return code === 'ETIMEDOUT' && !wasConnected(error)
    ? found('connect', 'it accepted no connection in time')
    : undefined
}

/** got reports the phase that timed out. The operating system reports the call that failed. */
function wasConnected(error: unknown): boolean {
  const { event, syscall, timings } = error as { event?: string; syscall?: string; timings?: { connect?: number } }
  if (CONNECT_PHASES.includes(event ?? '') || syscall === 'connect') return false
  return event === undefined || timings === undefined || timings.connect !== undefined
}
