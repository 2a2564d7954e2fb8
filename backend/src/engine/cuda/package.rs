//! The PyPI packages that bring NVIDIA's libraries.

/// Beginnings of libraries' names, and the package without its prefix and version of CUDA.
const PACKAGES: [(&str, &str); 10] = [
    ("libcublas", "cublas"),
    ("libcudart", "cuda-runtime"),
    ("libcudnn", "cudnn"),
    ("libcufft", "cufft"),
    ("libcurand", "curand"),
    ("libcusolver", "cusolver"),
    ("libcusparse", "cusparse"),
    ("libnvJitLink", "nvjitlink"),
    ("libnvrtc", "cuda-nvrtc"),
    ("libnccl", "nccl"),
];

/// ONNX Runtime for cards. The extras bring NVIDIA's libraries; versions before 1.21 have none.
pub(super) const RUNTIME: &str = "\"onnxruntime-gpu[cuda,cudnn]\"";

/// Whether a needed library is NVIDIA's, and so not part of the system.
pub(super) fn is_of_nvidia(library: &str) -> bool {
    ["libcu", "libnv", "libnccl"].iter().any(|start| library.starts_with(start))
        && !library.starts_with("libcurl")
}

/// The major version of CUDA that a library with these needs was built for.
pub(super) fn generation(needed: &[String]) -> Option<u32> {
    let major = |name: &String| {
        ["libcudart.so.", "libcublas.so."].iter().find_map(|start| name.strip_prefix(start)?.parse().ok())
    };
    needed.iter().find_map(major)
}

/// The package that brings a library. Those of CUDA 13 have no version in their names, except cuDNN.
pub(super) fn package(library: &str, generation: u32) -> Option<String> {
    let (_, name) = PACKAGES.iter().find(|(start, _)| library.starts_with(start))?;
    let is_plain = generation >= 13 && !["cudnn", "nccl"].contains(name);
    Some(if is_plain { format!("nvidia-{name}") } else { format!("nvidia-{name}-cu{generation}") })
}

/// Libraries that ONNX Runtime opens at their first use if it does not need them at once.
pub(super) fn opened_later(generation: u32) -> [String; 3] {
    let cufft = if generation >= 13 { 12 } else { 11 };
    ["libcudnn.so.9".into(), format!("libcufft.so.{cufft}"), format!("libnvrtc.so.{generation}")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_have_the_names_of_their_generation() {
        for (library, generation, name) in [
            ("libcublasLt.so.12", 12, Some("nvidia-cublas-cu12")),
            ("libcudart.so.12", 12, Some("nvidia-cuda-runtime-cu12")),
            ("libcudnn_ops.so.9", 12, Some("nvidia-cudnn-cu12")),
            ("libcublas.so.13", 13, Some("nvidia-cublas")),
            ("libcufft.so.12", 13, Some("nvidia-cufft")),
            ("libcudnn.so.9", 13, Some("nvidia-cudnn-cu13")),
            ("libnvinfer.so.10", 13, None),
        ] {
            assert_eq!(package(library, generation).as_deref(), name, "{library}");
        }
    }

    #[test]
    fn generation_is_that_of_the_needed_libraries() {
        let needed =
            |names: &[&str]| generation(&names.iter().map(|name| name.to_string()).collect::<Vec<_>>());
        assert_eq!(needed(&["libcurand.so.10", "libcublas.so.12"]), Some(12));
        assert_eq!(needed(&["libcublasLt.so.13", "libcudart.so.13"]), Some(13));
        assert_eq!(needed(&["libc.so.6"]), None);
    }
}
