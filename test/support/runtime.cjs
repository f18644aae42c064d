const { pathToFileURL } = require('node:url')
const { default: Runtime } = require('jest-runtime')

const shared = { esModules: new Map(), modules: new Map(), sourceMaps: new Map() }

/**
 * Loads src and libraries once for each worker, instead of once for each file. To compile and optimise them again takes a third of
 * the CPU time of all tests. The files of tests are loaded anew, so they share no variables.
 */
module.exports = class extends Runtime {
  constructor(config, ...rest) {
    super(config, ...rest)
    this.tests = `${config.rootDir}/test/`
    this.registries.esModuleRegistry = shared.esModules
    this.registries.moduleRegistry = shared.modules
    this.transformCache.sourceMaps = shared.sourceMaps
  }

  /** Less than usual: shared modules import others later, through the object that loaded them. */
  teardown() {
    this.restoreAllMocks()
    this.testState.enterTestCode()
    const ofTests = [this.tests, pathToFileURL(this.tests).href, '@jest/globals']
    for (const registry of [shared.esModules, shared.modules])
      for (const key of registry.keys()) if (ofTests.some((text) => key.includes(text))) registry.delete(key)
  }
}
