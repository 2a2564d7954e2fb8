//! Checks the files of a card and the memory of models. Needs no card and opens no library.

use parm_backend::engine::cuda::{Card, Cure, Kit, Lacking};
use parm_backend::engine::{Device, kit};
use parm_parity_models::repository::Repository;

use super::Finding;
use crate::settings::Settings;

const MB: u64 = 1 << 20;

/// Checks the files that the configured device needs.
pub(super) fn device(settings: &Settings) -> Vec<Finding> {
    let options = settings.backend.engine.options();
    let Some(found) = settings.embeds().then(|| kit(&options)).flatten() else { return Vec::new() };
    let or_cpu = Device::read(&options.device).is_some_and(|device| device.or_cpu);
    findings(&options.device, or_cpu, &found)
}

fn findings(device: &str, or_cpu: bool, found: &Result<Kit, Vec<Lacking>>) -> Vec<Finding> {
    let kit = match found {
        Ok(kit) => kit,
        Err(lacking) => {
            let missing = lacking.iter().map(|lacking| {
                let what = format!("device {device}: missing {}", lacking.part);
                if or_cpu { Finding::worth(what, cure(lacking)) } else { Finding::fails(what, cure(lacking)) }
            });
            return missing.collect();
        }
    };
    let (runtime, libraries) = (kit.runtime.display(), kit.libraries.len());
    let files =
        format!("device {device}: ONNX Runtime {runtime}, {libraries} libraries of CUDA and the driver");
    let mut findings = vec![Finding::well(files)];
    findings.push(match &kit.card {
        Card::Named(name) => Finding::well(format!("device {device}: card {name}")),
        Card::Unnamed(reason) | Card::Missing(reason) => Finding::worth(
            format!("device {device}: the card's UUID is unknown: {reason}"),
            "name the card with backend.card, so that copies avoid it",
        ),
    });
    findings.extend(kit.optional.iter().map(|lacking| {
        Finding::worth(
            format!("device {device}: missing {}, which only some models need", lacking.part),
            cure(lacking),
        )
    }));
    findings
}

fn cure(lacking: &Lacking) -> String {
    match &lacking.cure {
        Cure::Package(package) => format!("pip install {package}"),
        Cure::Action(action) => action.clone(),
    }
}

/// Checks that the models of the repository fit into the configured memory together.
pub(super) fn memory(settings: &Settings) -> Option<Finding> {
    let (backend, limit) = (&settings.backend, settings.backend.memory_mb);
    let folder = backend.models.as_ref().filter(|_| limit > 0 && settings.embeds())?;
    let scan = Repository::open(folder).ok()?.scan().ok()?;
    let latest = scan.models.values().filter_map(|model| Some(model.latest()?.1));
    let needed = latest.filter_map(|version| backend.memory_of(version).ok()).sum::<u64>().div_ceil(MB);
    let what = format!("memory: the models count {needed} MB of backend.memory_mb = {limit}");
    Some(match needed > limit {
        true => Finding::fails(what, "raise it, or serve fewer models: the last ones would not be loaded"),
        false => Finding::well(what),
    })
}

#[cfg(test)]
mod tests {
    use super::super::told;
    use super::*;

    #[test]
    fn missing_files_fail_unless_the_cpu_may_replace_the_card() {
        let lacking = vec![
            Lacking { part: "libcudnn.so.9".into(), cure: Cure::Package("nvidia-cudnn-cu13".into()) },
            Lacking { part: "libcuda.so.1".into(), cure: Cure::Action("install the driver".into()) },
        ];
        let said = told(&findings("cuda:0", false, &Err(lacking.clone())));
        assert_eq!(
            said,
            "FAIL device cuda:0: missing libcudnn.so.9\n       pip install nvidia-cudnn-cu13\n\
             FAIL device cuda:0: missing libcuda.so.1\n       install the driver\n"
        );
        let said = told(&findings("cuda:0,cpu", true, &Err(lacking)));
        assert!(said.starts_with("note device cuda:0,cpu: missing libcudnn.so.9\n"), "{said}");
    }

    #[test]
    fn complete_files_are_told_with_the_card() {
        let kit = |card| Kit {
            runtime: "/env/libonnxruntime.so.1".into(),
            libraries: vec!["/env/libcudart.so.13".into()],
            card,
            optional: vec![Lacking {
                part: "libcufft.so.12".into(),
                cure: Cure::Package("nvidia-cufft".into()),
            }],
        };
        let said = told(&findings("cuda:0", false, &Ok(kit(Card::Named("GPU-1".into())))));
        for line in [
            "ok   device cuda:0: ONNX Runtime /env/libonnxruntime.so.1, 1 libraries",
            "ok   device cuda:0: card GPU-1\n",
            "note device cuda:0: missing libcufft.so.12, which only some models need\n       pip install nvidia-cufft\n",
        ] {
            assert!(said.contains(line), "{line:?} is missing in\n{said}");
        }
        let said = told(&findings("cuda:0", false, &Ok(kit(Card::Unnamed("no driver".into())))));
        assert!(said.contains("note device cuda:0: the card's UUID is unknown: no driver\n"), "{said}");
    }
}
