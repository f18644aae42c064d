const { writeSync } = require('node:fs')

/** Reports to the process that started jest, by file descriptor 3: a file begins, or a test fails. */
module.exports = class {
  onTestFileStart({ path }) {
    this.say({ begins: path })
  }

  onTestCaseResult({ path }, { status, fullName }) {
    if (status === 'failed') this.say({ failed: fullName, path })
  }

  onTestFileResult({ path }, { numFailingTests, testExecError }) {
    if (testExecError !== undefined && testExecError !== null) this.say({ failed: 'the file does not run', path })
    else if (numFailingTests > 0) this.say({ failed: 'a hook', path })
  }

  say(message) {
    writeSync(3, `${JSON.stringify(message)}\n`)
  }
}
