import { generateKeyPairSync, randomBytes, sign } from 'node:crypto'

/* A self-signed certificate for 127.0.0.1 and localhost. */

type Bytes = Buffer

const der = (tag: number, ...parts: Bytes[]): Bytes => {
  const content = Buffer.concat(parts)
  const { length } = content
  const size = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, Math.floor(length / 256), length % 256]
  return Buffer.concat([Buffer.from([tag, ...size]), content])
}
const sequence = (...parts: Bytes[]) => der(0x30, ...parts)
const oid = (hex: string) => der(0x06, Buffer.from(hex, 'hex'))
const bits = (bytes: Bytes) => der(0x03, Buffer.from([0]), bytes)
const octets = (bytes: Bytes) => der(0x04, bytes)
const time = (date: Date) => {
  const text = date.toISOString().replaceAll(/[-:T]/g, '')
  return der(0x18, Buffer.from(`${text.slice(0, 14)}Z`))
}

const ECDSA_SHA256 = sequence(oid('2a8648ce3d040302'))
const YEAR_MS = 365 * 86_400_000

export interface TestCertificate {
  cert: string
  key: string
}

export function selfSigned(): TestCertificate {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'prime256v1' })
  const now = Date.now()
  const [from, to] = [now - 86_400_000, now + YEAR_MS]
  const name = sequence(der(0x31, sequence(oid('550403'), der(0x0c, Buffer.from('visibility-sync test')))))
  const host = der(0x82, Buffer.from('localhost'))
  const address = der(0x87, Buffer.from([127, 0, 0, 1]))
  const extensions = sequence(
    sequence(oid('551d13'), octets(sequence(der(0x01, Buffer.from([0xff]))))),
    sequence(oid('551d11'), octets(sequence(host, address))),
  )
  const body = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))),
    der(0x02, Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    ECDSA_SHA256,
    name,
    sequence(time(new Date(from)), time(new Date(to))),
    name,
    publicKey.export({ type: 'spki', format: 'der' }),
    der(0xa3, extensions),
  )
  const whole = sequence(body, ECDSA_SHA256, bits(sign('sha256', body, privateKey)))
  const lines = whole
    .toString('base64')
    .match(/.{1,64}/g)!
    .join('\n')
  return {
    cert: `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`,
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }) as string,
  }
}
