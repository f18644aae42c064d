// Stands for http2-wrapper in the bundled command, which speaks HTTP/1.1 alone.
const refuse = () => {
  throw new Error('HTTP/2 is not part of the command')
}
export default { auto: refuse, request: refuse }
