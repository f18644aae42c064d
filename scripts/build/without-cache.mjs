// Stands for cacheable-request in the bundled command, which caches no answers.
export class RequestError extends Error {}
export class CacheError extends Error {}
export default class CacheableRequest {
  constructor() {
    throw new Error('caching is not part of the command')
  }
}
