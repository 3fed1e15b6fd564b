#!/bin/sh
# The steps of the image's build: build.sh dependencies|package|verify FOLDER
#
# FOLDER is the virtual environment that the image consists of. The Dockerfile runs these steps, and image_check.py runs
# the lines of the Dockerfile where there is no Docker.
set -eu
cd "$(dirname "$0")/../.."
step=$1
folder=$2

# What a lock file names into a virtual environment: wheels only, each with a hash that is in the file.
install_locked() {
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir \
    --require-hashes --no-deps --only-binary :all: --requirement "$2"
}

case $step in
dependencies)
  python3 -m venv "$folder"
  install_locked "$folder" requirements/runtime.txt
  ;;
package)
  # The tools that build the wheel are locked too, and stay out of the image, as does pip.
  tools=$(mktemp -d)
  trap 'rm -rf "$tools"' EXIT
  python3 -m venv "$tools"
  install_locked "$tools" requirements/build.txt
  "$tools/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-cache-dir \
    --no-index --no-deps --no-build-isolation --wheel-dir "$tools/wheels" .
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir \
    --no-index --no-deps "$tools"/wheels/gangline-*.whl
  "$folder/bin/python" -m pip --disable-pip-version-check check
  "$folder/bin/python" -m pip --quiet --disable-pip-version-check uninstall --yes pip setuptools
  ;;
verify)
  cd /
  for program in gangline gangline-agent gangline-webhook; do
    "$folder/bin/$program" --version
    "$folder/bin/$program" --help >/dev/null
  done
  # Every command can be imported, every plugin loaded, and NVML's binding is there.
  "$folder/bin/python" -I -c 'from gangline.main import COMMANDS, load; [load(*each) for each in COMMANDS.items()]'
  "$folder/bin/gangline" plugins list >/dev/null
  "$folder/bin/python" -I -c 'import pynvml'
  ;;
*)
  echo "build.sh: no step $step" >&2
  exit 2
  ;;
esac
