//! Discovery in trees of files like those of the packages: onnxruntime-gpu 1.31 for CUDA 13 and 1.22 for CUDA 12.

use std::fs;
use std::path::{Path, PathBuf};

use super::needed::library_that_needs;
use super::*;

/// The libraries that the provider of 1.31 needs.
const NEEDS_13: [&str; 6] = [
    "libcublasLt.so.13",
    "libcublas.so.13",
    "libcurand.so.10",
    "libcudart.so.13",
    "libcuda.so.1",
    "libc.so.6",
];

/// The libraries that the provider of 1.22 needs.
const NEEDS_12: [&str; 8] = [
    "libcublasLt.so.12",
    "libcublas.so.12",
    "libcurand.so.10",
    "libcufft.so.11",
    "libcudart.so.12",
    "libcudnn.so.9",
    "libnvrtc.so.12",
    "libstdc++.so.6",
];

const RUNTIME: &str = "\"onnxruntime-gpu[cuda,cudnn]\"";

/// Files of NVIDIA's packages below `nvidia`, and the package that brings each.
const FILES_13: [(&str, &str); 7] = [
    ("cu13/lib/libcublasLt.so.13", "nvidia-cublas"),
    ("cu13/lib/libcublas.so.13", "nvidia-cublas"),
    ("cu13/lib/libcurand.so.10", "nvidia-curand"),
    ("cu13/lib/libcudart.so.13", "nvidia-cuda-runtime"),
    ("cu13/lib/libcufft.so.12", "nvidia-cufft"),
    ("cu13/lib/libnvrtc.so.13", "nvidia-cuda-nvrtc"),
    ("cudnn/lib/libcudnn.so.9", "nvidia-cudnn-cu13"),
];

const FILES_12: [(&str, &str); 7] = [
    ("cublas/lib/libcublasLt.so.12", "nvidia-cublas-cu12"),
    ("cublas/lib/libcublas.so.12", "nvidia-cublas-cu12"),
    ("curand/lib/libcurand.so.10", "nvidia-curand-cu12"),
    ("cufft/lib/libcufft.so.11", "nvidia-cufft-cu12"),
    ("cuda_runtime/lib/libcudart.so.12", "nvidia-cuda-runtime-cu12"),
    ("cuda_nvrtc/lib/libnvrtc.so.12", "nvidia-cuda-nvrtc-cu12"),
    ("cudnn/lib/libcudnn.so.9", "nvidia-cudnn-cu12"),
];

struct Tree(tempfile::TempDir);

impl Tree {
    fn empty() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A machine with the packages and the driver.
    fn complete(needs: &[&str], files: &[(&str, &str)]) -> Self {
        let tree = Self::empty();
        tree.put("site/onnxruntime/capi/libonnxruntime.so.1", &[]);
        tree.put("site/onnxruntime/capi/libonnxruntime_providers_shared.so", &[]);
        tree.put("site/onnxruntime/capi/libonnxruntime_providers_cuda.so", needs);
        for (file, _) in files {
            tree.put(&format!("site/nvidia/{file}"), &[]);
        }
        tree.put("system/libcuda.so.1", &[]);
        tree
    }

    fn put(&self, path: &str, needs: &[&str]) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, library_that_needs(needs)).unwrap();
    }

    fn places(&self) -> Places {
        let root = self.0.path();
        let runtimes = entries(&root.join("site/onnxruntime/capi"));
        let is_runtime = |path: &PathBuf| path.to_string_lossy().contains("libonnxruntime.so");
        Places {
            runtimes: runtimes.into_iter().filter(is_runtime).collect(),
            system: vec![root.join("system")],
            cards: Cards::in_folder(&root.join("gpus")),
        }
    }

    fn find(&self) -> Result<Kit, Vec<Lacking>> {
        find(0, &self.places())
    }

    fn relative(&self, paths: &[PathBuf]) -> Vec<String> {
        let text = |path: &PathBuf| path.strip_prefix(self.0.path()).unwrap().display().to_string();
        paths.iter().map(text).collect()
    }
}

fn name(path: &str) -> String {
    Path::new(path).file_name().unwrap().to_string_lossy().into_owned()
}

fn by_package(part: &str, package: &str) -> Lacking {
    Lacking { part: part.into(), cure: Cure::Package(package.into()) }
}

#[test]
fn complete_packages_are_found_after_what_they_need() {
    for (needs, files) in [(&NEEDS_13[..], &FILES_13), (&NEEDS_12[..], &FILES_12)] {
        let tree = Tree::complete(needs, files);
        let cudart = needs.iter().find(|name| name.starts_with("libcudart")).unwrap();
        let curand = files.iter().find(|(file, _)| file.contains("curand")).unwrap().0;
        tree.put(&format!("site/nvidia/{curand}"), &[cudart]);
        let kit = tree.find().unwrap();
        let found = tree.relative(&kit.libraries);
        let expected: std::collections::BTreeSet<String> = files
            .iter()
            .map(|(file, _)| format!("site/nvidia/{file}"))
            .chain(["system/libcuda.so.1".to_owned()])
            .collect();
        assert_eq!(found.iter().cloned().collect::<std::collections::BTreeSet<_>>(), expected);
        let place = |part: &str| found.iter().position(|path| path.contains(part)).unwrap();
        assert!(place("libcudart") < place("libcurand"), "{found:?}");
        assert_eq!(tree.relative(&[kit.runtime]), ["site/onnxruntime/capi/libonnxruntime.so.1"]);
        assert_eq!(kit.optional, []);
        assert!(matches!(kit.card, Card::Unnamed(_)));
    }
}

#[test]
fn each_missing_file_is_named_with_its_package() {
    for (needs, files) in [(&NEEDS_13[..], &FILES_13), (&NEEDS_12[..], &FILES_12)] {
        let tree = Tree::complete(needs, files);
        let own = ["libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so"];
        let own = own.map(|file| (format!("onnxruntime/capi/{file}"), RUNTIME));
        let nvidia = files.iter().map(|(file, package)| (format!("nvidia/{file}"), *package));
        for (file, package) in nvidia.chain(own) {
            let path = tree.0.path().join("site").join(&file);
            let content = fs::read(&path).unwrap();
            fs::remove_file(&path).unwrap();
            let lacking = match tree.find() {
                Err(lacking) => lacking,
                // 1.31 opens these at the first use.
                Ok(kit) => {
                    assert!(
                        needs == NEEDS_13 && (file.contains("cufft") || file.contains("nvrtc")),
                        "{file}"
                    );
                    kit.optional
                }
            };
            assert_eq!(lacking, [by_package(&name(&file), package)]);
            let told = told(&lacking);
            assert_eq!(told, format!("missing {}: pip install {package}", name(&file)));
            fs::write(&path, content).unwrap();
        }
        assert!(tree.find().is_ok());
    }
}

#[test]
fn bare_machine_lacks_the_runtime_and_the_driver() {
    let told = told(&Tree::empty().find().unwrap_err());
    assert_eq!(
        told,
        "missing libonnxruntime.so, libonnxruntime_providers_shared.so, libonnxruntime_providers_cuda.so: \
         pip install \"onnxruntime-gpu[cuda,cudnn]\"; missing libcuda.so.1: install NVIDIA's driver, or give the \
         container its card"
    );
}

#[test]
fn package_for_the_cpu_lacks_the_providers() {
    let tree = Tree::empty();
    tree.put("site/onnxruntime/capi/libonnxruntime.so.1", &[]);
    tree.put("system/libcuda.so.1", &[]);
    let parts: Vec<String> = tree.find().unwrap_err().into_iter().map(|lacking| lacking.part).collect();
    assert_eq!(parts, ["libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so"]);
}

#[test]
fn several_missing_packages_are_one_command() {
    let tree = Tree::complete(&NEEDS_13, &[]);
    let told = told(&tree.find().unwrap_err());
    assert_eq!(
        told,
        "missing libcublasLt.so.13, libcublas.so.13, libcurand.so.10, libcudart.so.13, libcudnn.so.9: pip install \
         nvidia-cublas nvidia-curand nvidia-cuda-runtime nvidia-cudnn-cu13"
    );
}

#[test]
fn provider_that_is_not_a_library_is_reported() {
    let tree = Tree::complete(&NEEDS_13, &FILES_13);
    let provider = tree.0.path().join("site/onnxruntime/capi/libonnxruntime_providers_cuda.so");
    fs::write(provider, "not a library").unwrap();
    let told = told(&tree.find().unwrap_err());
    assert!(told.contains("not a shared library") && told.contains("reinstall"), "{told}");
}

#[test]
fn libraries_of_the_own_cuda_version_are_preferred() {
    for (needs, files, other, curand) in [
        (&NEEDS_13[..], &FILES_13, "curand/lib/libcurand.so.10", "site/nvidia/cu13/lib/libcurand.so.10"),
        (&NEEDS_12[..], &FILES_12, "cu13/lib/libcurand.so.10", "site/nvidia/curand/lib/libcurand.so.10"),
    ] {
        let tree = Tree::complete(needs, files);
        tree.put(&format!("site/nvidia/{other}"), &[]);
        let found = tree.relative(&tree.find().unwrap().libraries);
        assert!(found.iter().any(|path| path == curand), "{found:?}");
    }
}

#[test]
fn system_libraries_serve_without_packages() {
    let tree = Tree::complete(&NEEDS_13, &[]);
    for (file, _) in FILES_13 {
        tree.put(&format!("system/{}", name(file)), &[]);
    }
    assert!(tree.find().is_ok());
}

#[test]
fn missing_card_is_reported_with_the_others() {
    let tree = Tree::complete(&NEEDS_13, &FILES_13);
    let card = tree.0.path().join("gpus/0000:04:00.0");
    fs::create_dir_all(&card).unwrap();
    fs::write(card.join("information"), "Model: H100\nGPU UUID: GPU-a\n").unwrap();
    assert_eq!(tree.find().unwrap().card, Card::Named("GPU-a".into()));
    let told = told(&find(1, &tree.places()).unwrap_err());
    assert!(told.starts_with("missing card 1: CUDA has 1 devices, numbered from 0"), "{told}");
}

#[test]
fn folders_of_the_loader_are_read_from_its_files() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("cuda.conf"), "# CUDA\n/opt/cuda/lib64\n  /opt/more \nrelative\n").unwrap();
    fs::write(folder.path().join("README"), "/ignored\n").unwrap();
    assert_eq!(configured(folder.path()), [Path::new("/opt/cuda/lib64"), Path::new("/opt/more")]);
}
