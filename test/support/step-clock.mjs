// Loaded into the command with NODE_OPTIONS: on SIGUSR2 its clock steps back by an hour, as when a machine's clock is set.
const RealDate = Date
let offset = 0
process.on('SIGUSR2', () => {
  offset -= 3_600_000
  process.stderr.write('the clock stepped back\n')
})
globalThis.Date = class extends RealDate {
  constructor(...args) {
    if (args.length === 0) super(RealDate.now() + offset)
    else super(...args)
  }
  static now() {
    return RealDate.now() + offset
  }
}
