/* What the contract gives is exact beside everything that a service may offer besides. */

process.env.TEST_EXTRAS = 'on'
await import('./exact.test.ts')
