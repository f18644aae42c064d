const { default: Runtime } = require('jest-runtime')

const shared = { esModules: new Map(), modules: new Map(), sourceMaps: new Map() }

/**
 * Loads src and libraries once for each worker, instead of once for each file. To compile and optimise them again takes a third of
 * the CPU time of all tests. The files of tests are loaded anew, so they share no variables.
 */
module.exports = class extends Runtime {
  constructor(...args) {
    super(...args)
    this.registries.esModuleRegistry = shared.esModules
    this.registries.moduleRegistry = shared.modules
    this.transformCache.sourceMaps = shared.sourceMaps
  }

  /** Less than usual: shared modules import others later, through the object that loaded them. */
  teardown() {
    this.restoreAllMocks()
    this.testState.enterTestCode()
    for (const registry of [shared.esModules, shared.modules])
      for (const key of registry.keys()) if (/\/test\/|@jest\/globals/.test(key)) registry.delete(key)
  }
}
