//! Issues certificates for tests.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, DnValue, IsCa, KeyPair, KeyUsagePurpose,
    SanType, date_time_ymd,
};

/// A certificate authority.
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

    /// A certificate that expires at the end of this year.
    pub fn issue_until(&self, names: &[&str], year: i32) -> Issued {
        self.issue_as(names, |params| params.not_after = date_time_ymd(year, 12, 31))
    }

    /// A certificate whose parameters are changed before it is signed.
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
    /// Writes `NAME.pem` and `NAME.key` to a folder, each atomically.
    pub fn write(&self, folder: &Path, name: &str) -> [PathBuf; 2] {
        [(&self.certificate, "pem"), (&self.key, "key")].map(|(text, end)| {
            let (path, unfinished) =
                (folder.join(format!("{name}.{end}")), folder.join(format!("{name}.{end}.new")));
            std::fs::write(&unfinished, text).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&unfinished, mode).unwrap();
            std::fs::rename(&unfinished, &path).unwrap();
            path
        })
    }
}
