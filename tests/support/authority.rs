//! An authority of certificates, for as long as a test lasts.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, DnValue, IsCa, KeyPair, KeyUsagePurpose,
    SanType, date_time_ymd,
};

/// Signs what it is asked to.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key, both PEM.
pub struct Issued {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, DnValue::from("an authority of a test"));
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// The authority's own certificate.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate with these names: addresses, URIs and DNS names.
    pub fn issue(&self, names: &[&str]) -> Issued {
        self.issue_until(names, 4000)
    }

    /// One that ends with this year.
    pub fn issue_until(&self, names: &[&str], year: i32) -> Issued {
        self.issue_as(names, |params| params.not_after = date_time_ymd(year, 12, 31))
    }

    /// One that is changed in some way before it is signed.
    pub fn issue_as(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.iter().map(|name| alternative(name)).collect();
        params.not_before = date_time_ymd(2000, 1, 1);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Issued { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

fn alternative(name: &str) -> SanType {
    if let Ok(address) = name.parse() {
        return SanType::IpAddress(address);
    }
    let text = name.try_into().unwrap();
    if name.contains("://") { SanType::URI(text) } else { SanType::DnsName(text) }
}

impl Issued {
    /// Writes `NAME.pem` and `NAME.key` to a folder, each whole or not at all.
    pub fn write(&self, folder: &Path, name: &str) -> [PathBuf; 2] {
        [(&self.certificate, "pem"), (&self.key, "key")].map(|(text, end)| {
            let (path, beside) =
                (folder.join(format!("{name}.{end}")), folder.join(format!("{name}.{end}.new")));
            std::fs::write(&beside, text).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&beside, mode).unwrap();
            std::fs::rename(&beside, &path).unwrap();
            path
        })
    }
}
