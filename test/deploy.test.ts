import { execFile, execFileSync } from 'node:child_process'
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { parseAllDocuments } from 'yaml'
import * as z from 'zod'
import { startProcess, temporaryFolder, until } from './support/cli.ts'
import { longGroup } from './support/long.ts'
import { type Setup, setUp } from './support/setup.ts'

/* What people deploy: manifests, the image's recipe, the package. */

const root = fileURLToPath(new URL('..', import.meta.url))
const read = (path: string) => readFileSync(join(root, path), 'utf8')
const { version } = JSON.parse(read('package.json')) as { version: string }
const documents = (path: string) =>
  parseAllDocuments(read(path)).map((document) => {
    expect(document.errors).toEqual([])
    return document.toJS() as any
  })

const container = z.object({
  image: z.literal(`visibility-sync:${version}`),
  args: z.array(z.string()).min(1),
  env: z.array(z.object({ name: z.string() })),
  resources: z.object({
    requests: z.object({ cpu: z.string(), memory: z.string() }),
    limits: z.object({ memory: z.string() }),
  }),
  securityContext: z.object({
    allowPrivilegeEscalation: z.literal(false),
    readOnlyRootFilesystem: z.literal(true),
    capabilities: z.object({ drop: z.tuple([z.literal('ALL')]) }),
  }),
})
const pod = z.object({
  automountServiceAccountToken: z.literal(false),
  terminationGracePeriodSeconds: z.number().min(30),
  securityContext: z.object({ runAsNonRoot: z.literal(true), runAsUser: z.number() }),
  containers: z.tuple([container]),
})

test('the Kubernetes manifests have limits, probes, no privileges and no overlap', () => {
  const [job] = documents('deploy/kubernetes/cronjob.yaml')
  expect([job.apiVersion, job.kind, job.spec.concurrencyPolicy]).toEqual(['batch/v1', 'CronJob', 'Forbid'])
  pod.parse(job.spec.jobTemplate.spec.template.spec)
  const [deployment, service] = documents('deploy/kubernetes/serve.yaml')
  const spec = pod.parse(deployment.spec.template.spec)
  expect(spec.containers[0].args[0]).toBe('serve')
  const [serve] = deployment.spec.template.spec.containers
  expect([serve.livenessProbe.httpGet.path, serve.readinessProbe.httpGet.path]).toEqual(['/healthz', '/readyz'])
  expect(service.spec.selector).toEqual(deployment.spec.template.metadata.labels)
  const [workers, enqueuing] = documents('deploy/kubernetes/workers.yaml')
  const [worker] = pod.parse(workers.spec.template.spec).containers
  expect(worker.args).toEqual(['worker', '--heartbeat-file', '/tmp/heartbeat'])
  const [{ livenessProbe, volumeMounts }] = workers.spec.template.spec.containers
  expect(livenessProbe.exec.command).toEqual(['node', '/app/bin/healthcheck.js'])
  // The file system is read-only, so the heartbeat needs a volume.
  expect(volumeMounts).toEqual([{ name: 'tmp', mountPath: '/tmp' }])
  const queued = pod.parse(enqueuing.spec.jobTemplate.spec.template.spec)
  expect([enqueuing.kind, ...queued.containers[0].args]).toEqual(['CronJob', 'sync', '--queue'])
})

describe('the health check of a worker', () => {
  const folder = temporaryFolder()
  const heartbeat = join(folder.path, 'heartbeat')
  const healthy = (pid: number) =>
    promisify(execFile)(process.execPath, [join(root, 'bin/healthcheck.js'), String(pid)]).then(
      () => true,
      () => false,
    )

  test('distinguishes a live worker from one that hangs, and the file is removed with the worker', async () => {
    const setup = await setUp({ world: { projects: 1, prompts: 2, models: 1, brands: 1 } })
    const worker = startProcess(['worker', '--heartbeat-file', heartbeat], { env: setup.env, config: setup.fileConfig })
    try {
      await worker.saw('Working:')
      expect(readFileSync(heartbeat, 'utf8').trim()).toBe(String(worker.child.pid))
      expect(await healthy(worker.child.pid!)).toBe(true)
      // As if it had not beaten for a minute; it cannot mend that while it is stopped.
      worker.child.kill('SIGSTOP')
      const longAgo = Date.now() / 1000 - 60
      utimesSync(heartbeat, longAgo, longAgo)
      expect(await healthy(worker.child.pid!)).toBe(false)
      worker.child.kill('SIGCONT')
      await until('it is healthy', () => healthy(worker.child.pid!))
    } finally {
      worker.child.kill('SIGCONT')
      worker.child.kill('SIGTERM')
      expect((await worker.done).code).toBe(0)
    }
    expect(existsSync(heartbeat)).toBe(false)
  })
})

test('the systemd units name existing files, and grant no privileges', () => {
  const unit = (path: string) => {
    const sections: Record<string, Record<string, string[]>> = {}
    let current = ''
    for (const line of read(path).split('\n')) {
      if (/^\s*(#.*)?$/.test(line)) continue
      const header = /^\[(\w+)\]$/.exec(line)?.[1]
      if (header !== undefined) sections[(current = header)] = {}
      else {
        const [, key, value] = /^(\w+)=(.*)$/.exec(line)!
        ;(sections[current]![key!] ??= []).push(value!)
      }
    }
    return sections
  }
  const service = unit('deploy/systemd/visibility-sync.service')
  expect(service.Service).toMatchObject({ Type: ['oneshot'], DynamicUser: ['yes'], ProtectSystem: ['strict'] })
  expect(service.Service!.ExecStart).toEqual(['/usr/local/bin/visibility-sync sync'])
  expect(service.Service!.Environment).toContain('DATABASE_URL_FILE=%d/database_url')
  expect(unit('deploy/systemd/visibility-sync.timer').Timer!.OnCalendar).toEqual(['*-*-* *:15:00'])
})

const workflows = [
  ...readdirSync(join(root, '.github/workflows')).map((name) => `.github/workflows/${name}`),
  'deploy/github/visibility-sync.yml',
]

test('the workflows are valid YAML with the fields that GitHub requires', () => {
  expect(workflows.length).toBeGreaterThanOrEqual(4)
  for (const path of workflows) {
    const [workflow] = documents(path)
    expect(workflow).toMatchObject({ name: expect.any(String), on: expect.anything(), permissions: expect.anything() })
    for (const job of Object.values<any>(workflow.jobs)) {
      expect(job['runs-on']).toBe('ubuntu-latest')
      for (const step of job.steps) expect(step.uses ?? step.run).toEqual(expect.any(String))
    }
  }
  expect(read('deploy/github/visibility-sync.yml')).toContain(`./visibility-sync-${version}.tgz`)
})

test('nothing is installed from a registry, since nothing is published', () => {
  const tracked = execFileSync('git', ['ls-files', '*.md', 'deploy', 'compose.yaml'], { cwd: root, encoding: 'utf8' })
  const ofRegistry = /npm install[^\n`]* visibility-sync(?=[@\s`]|$)|npx (?:--yes )?visibility-sync@/gm
  const found = tracked
    .trim()
    .split('\n')
    .flatMap((path) => [...read(path).matchAll(ofRegistry)].map(([text]) => `${path}: ${text}`))
  expect(found).toEqual([])
  expect(read('README.md')).toContain(`npm install --global ./visibility-sync-${version}.tgz`)
})

describe('the supply chain', () => {
  const jobs = workflows.flatMap((path) =>
    Object.entries<any>(documents(path)[0].jobs).map(([name, job]) => ({ name: `${path}: ${name}`, job, path })),
  )
  const DIGEST = /@sha256:[0-9a-f]{64}$/

  test('every action is pinned to a commit, with its version beside it', () => {
    const uses = workflows.flatMap((path) =>
      read(path)
        .split('\n')
        .flatMap((line) => (line.includes('uses:') ? [line.trim()] : [])),
    )
    expect(uses.length).toBeGreaterThan(15)
    for (const line of uses) expect(line).toMatch(/^- uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/)
  })

  test('every image is pinned to a digest', () => {
    const from = [...read('Dockerfile').matchAll(/^FROM (\S+)/gm)].map(([, image]) => image!)
    expect(from.filter((image) => image !== '${NODE}')).toEqual([expect.stringMatching(/^node:24-slim@sha256:/)])
    expect(read('Dockerfile')).toMatch(/^ARG NODE=base$/m)
    expect(read('Dockerfile')).not.toContain('# syntax=')
    const { services } = documents('compose.yaml')[0]
    const images = Object.values<any>(services).flatMap(({ image, build }) => (build === undefined ? [image] : []))
    const tested = jobs.flatMap(({ job }) => job.strategy?.matrix?.postgres ?? [])
    for (const image of [...from.slice(0, 1), ...images, ...tested]) expect(image).toMatch(DIGEST)
    expect([images.length, tested.length]).toEqual([2, 2])
  })

  test('each job has only the permissions that it needs, and only jobs that sign get an identity', () => {
    for (const path of workflows) expect([{}, { contents: 'read' }]).toContainEqual(documents(path)[0].permissions)
    const writers = jobs.flatMap(({ name, job }) =>
      Object.entries<string>(job.permissions ?? {}).flatMap(([right, level]) =>
        level === 'write' ? [`${name}: ${right}`] : [],
      ),
    )
    expect(writers.sort()).toEqual(
      [
        'release.yml: attest: attestations',
        'release.yml: attest: id-token',
        'release.yml: attest: packages',
        'release.yml: image: packages',
        'release.yml: npm: id-token',
        'scorecard.yml: scorecard: id-token',
        'scorecard.yml: scorecard: security-events',
        'security.yml: codeql: security-events',
      ].map((name) => `.github/workflows/${name}`),
    )
    // Who may sign or publish runs nothing that others wrote but pinned actions and npm itself.
    for (const { name, job } of jobs) {
      if (job.permissions?.['id-token'] !== 'write') continue
      for (const { run = '' } of job.steps)
        expect({ name, run }).toEqual({ name, run: expect.not.stringMatching(/npm (ci|install|run|test)|npx/) })
      // Scorecard reads the repository and runs nothing of it.
      if (!name.includes('scorecard')) expect(JSON.stringify(job)).not.toContain('actions/checkout')
    }
    for (const { job } of jobs)
      for (const step of job.steps)
        if (step.uses?.startsWith('actions/checkout')) expect(step.with['persist-credentials']).toBe(false)
  })
})

test('a release has provenance and an SBOM of the shipped files', () => {
  const [{ jobs }] = documents('.github/workflows/release.yml')
  const steps = (job: string) => JSON.stringify(jobs[job].steps)
  expect(steps('package')).toContain('npm sbom --package-lock-only --omit=dev')
  expect(steps('package')).toContain('> release/sbom.cdx.json')
  expect(steps('image')).toContain('"provenance":"mode=max","sbom":true')
  const attested = jobs.attest.steps.map((step: any) => step.with?.['sbom-path'] ?? step.with?.['subject-digest'])
  expect(attested.filter(Boolean)).toEqual(['release/sbom.cdx.json', '${{ needs.image.outputs.digest }}'])
  expect(jobs.npm.needs).toEqual(['package', 'attest'])
  expect(steps('npm')).toContain('npm publish release/*.tgz --provenance --access public --ignore-scripts')
  // The workflow itself is trusted.
  expect(steps('npm')).not.toMatch(/secrets|TOKEN/)
  const command = ['sbom', '--package-lock-only', '--omit=dev', '--sbom-format=cyclonedx', '--sbom-type=application']
  const { components } = JSON.parse(execFileSync('npm', command, { cwd: root, encoding: 'utf8', stdio: 'pipe' }))
  const names = components.map(({ name }: { name: string }) => name)
  expect(names).toContain('pg')
  expect(names).not.toContain('jest')
})

test('Compose starts three services, each once the one before is healthy, with secrets from files', () => {
  const [compose] = documents('compose.yaml')
  expect(Object.keys(compose.services)).toEqual(['postgres', 'visibility-sync', 'metabase'])
  const { 'visibility-sync': sync, postgres } = compose.services
  expect(sync).toMatchObject({
    read_only: true,
    init: true,
    cap_drop: ['ALL'],
    command: ['serve', '--host', '0.0.0.0'],
  })
  expect(sync.depends_on.postgres.condition).toBe('service_healthy')
  expect(sync.environment).toMatchObject({
    VISIBILITY_API_KEY_FILE: '/run/secrets/api_key',
    DATABASE_URL_FILE: '/run/secrets/database_url',
  })
  for (const secret of [...sync.secrets, ...postgres.secrets])
    expect(compose.secrets[secret].file).toMatch(/^\.\/secrets\//)
  expect(sync.ports).toEqual(['127.0.0.1:8080:8080'])
  // The role of the sync is made by a script, and is no superuser.
  expect(postgres.environment.POSTGRES_USER).toBeUndefined()
})

test('the image is built from existing files, runs unprivileged, and has its version', () => {
  const lines = read('Dockerfile')
  for (const [, sources] of lines.matchAll(/^COPY (?!--from)(.+) \S+$/gm))
    for (const source of sources!.split(' ')) expect(existsSync(join(root, source))).toBe(true)
  expect(lines).toContain('USER 1000:1000')
  expect(lines).toContain('HEALTHCHECK')
  expect(lines).toContain(`ARG VERSION=${version}`)
  expect(lines.match(/^FROM \$\{NODE\}/gm)?.length).toBe(3)
  expect(read('CHANGELOG.md')).toContain(`## ${version}`)
})

test('npm has no script to run, or to warn of, where the package is installed or used by npx', () => {
  const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> }
  const ofInstall = ['preinstall', 'install', 'postinstall', 'prepublish', 'preprepare', 'prepare', 'postprepare']
  expect(ofInstall.filter((name) => name in scripts)).toEqual([])
  // For `npm ci` in a clone and installs of a git address: npm runs it where it fills node_modules of the package itself.
  expect(scripts.dependencies).toBe('npm run --silent build -- --if-changed')
})

test('npm ci has no install script of a package to warn of', () => {
  const { packages } = JSON.parse(read('package-lock.json')) as {
    packages: Record<string, { hasInstallScript?: true }>
  }
  const { allowScripts } = JSON.parse(read('package.json')) as { allowScripts: Record<string, boolean> }
  const names = Object.entries(packages).flatMap(([path, { hasInstallScript }]) =>
    hasInstallScript ? [path.split('node_modules/').at(-1)!] : [],
  )
  expect(names).toContain('esbuild')
  expect(names.filter((name) => !(name in allowScripts))).toEqual([])
})

longGroup('the packed package in an empty folder', () => {
  let setup: Setup
  const folder = temporaryFolder()
  const home = join(folder.path, 'empty')

  beforeAll(async () => {
    setup = await setUp({ world: { projects: 1, prompts: 5, models: 2, brands: 3 } })
    // In a copy: packing writes a lock file beside package.json, which nobody else may see meanwhile. Without what other tests
    // may be writing.
    const copy = join(folder.path, 'copy')
    mkdirSync(copy)
    const { files } = JSON.parse(read('package.json')) as { files: string[] }
    const kept = files.map((name) => name.split('/')[0]!).filter((name) => existsSync(join(root, name)))
    for (const name of [...kept, 'package.json', 'package-lock.json', 'README.md', 'LICENSE', 'scripts'])
      cpSync(join(root, name), join(copy, name), { recursive: true })
    execFileSync('npm', ['run', '--silent', 'prepack'], { cwd: copy, stdio: 'pipe' })
    execFileSync('npm', ['pack', '--ignore-scripts', '--silent', '--pack-destination', folder.path], {
      cwd: copy,
      stdio: 'pipe',
    })
    execFileSync('npm', ['run', '--silent', 'postpack'], { cwd: copy, stdio: 'pipe' })
    expect(existsSync(join(copy, 'npm-shrinkwrap.json'))).toBe(false)
    const [tarball] = readdirSync(folder.path).filter((name) => name.endsWith('.tgz'))
    const modules = join(home, 'node_modules')
    mkdirSync(join(modules, '.bin'), { recursive: true })
    execFileSync('tar', ['xzf', join(folder.path, tarball!), '-C', modules])
    execFileSync('mv', [join(modules, 'package'), join(modules, 'visibility-sync')])
    symlinkSync('../visibility-sync/bin/visibility-sync.js', join(modules, '.bin/visibility-sync'))
    // What npm would install beside it.
    for (const name of readdirSync(join(root, 'node_modules'))) {
      if (!name.startsWith('.')) symlinkSync(join(root, 'node_modules', name), join(modules, name))
    }
    writeFileSync(join(home, 'package.json'), '{"type":"module"}')
  })

  // Not the synchronous kind: the service that the commands ask runs in this very process.
  const shell = async (script: string) => {
    const options = {
      cwd: home,
      env: { PATH: process.env.PATH ?? '', HOME: folder.path, LOG_LEVEL: 'error' },
      timeout: 60_000,
    }
    return (await promisify(execFile)('bash', ['-euc', script], options)).stdout
  }

  test('init, check and the first sync work as written in the README', async () => {
    expect(await shell('npx visibility-sync init')).toContain('VISIBILITY_API_URL')
    const block = /Or set variables:\n\n```sh\n([\s\S]*?)```/.exec(read('README.md'))![1]!
    const filled = block
      .replace('https://…/v1', setup.env.VISIBILITY_API_URL!)
      .replace('VISIBILITY_API_KEY=…', `VISIBILITY_API_KEY=${setup.env.VISIBILITY_API_KEY}`)
      .replace('or_…,or_…', setup.env.VISIBILITY_PROJECTS!)
      .replace('postgres://…', setup.database.url)
    const output = await shell(filled)
    expect(output).toContain('All well.')
    expect(output).toContain('complete')
    await expect(shell('npx visibility-sync init')).rejects.toThrow('exists')
  })

  test('is a library too', async () => {
    writeFileSync(
      join(home, 'use.js'),
      `import { createClient, sync } from 'visibility-sync'
       const report = await sync({ streams: ['prompts'], env: { ...process.env } })
       console.log(report.outcome, typeof createClient)`,
    )
    const settings = Object.entries(setup.env).map(([name, value]) => `export ${name}='${value}'`)
    expect((await shell([...settings, 'node use.js'].join('\n'))).trim()).toBe('complete function')
  })
})
