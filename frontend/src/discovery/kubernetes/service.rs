//! Address of a Service of workers, as written in `frontend.workers`.

use std::fmt;

/// A Service, and the port of its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    text: String,
    scheme: String,
    /// Name of the Service.
    pub name: String,
    /// Its namespace, if different from the frontend's.
    pub namespace: Option<String>,
    /// The port.
    pub port: Port,
}

/// Selects a port of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Port {
    /// The only port.
    Only,
    /// The port with this name in the Service.
    Named(String),
    /// This port of the pods.
    Number(u16),
}

impl Service {
    /// Reads `kubernetes+SCHEME://SERVICE[.NAMESPACE][:PORT]`; `None` for another kind of address.
    pub fn read(text: &str) -> Option<Result<Self, String>> {
        let (scheme, rest) = text.strip_prefix("kubernetes+")?.split_once("://")?;
        Some(parse(text, scheme, rest))
    }

    /// Address of an endpoint, from its host and port.
    pub fn url(&self, authority: &str) -> String {
        format!("{}://{authority}", self.scheme)
    }
}

fn parse(text: &str, scheme: &str, rest: &str) -> Result<Service, String> {
    let bad = || {
        format!(
            "invalid SERVICE[.NAMESPACE][:PORT] '{rest}': use kubernetes+http://workers.my-namespace:http, with the port's name in \
             the Service or its number in the pods"
        )
    };
    let (name, port) = match rest.split_once(':') {
        None => (rest, Port::Only),
        Some((name, port)) => match port.parse::<u16>() {
            Ok(1..) => (name, Port::Number(port.parse().map_err(|_| bad())?)),
            // Names of ports contain a letter.
            Err(_) if is_label(port, 15) && port.bytes().any(|byte| byte.is_ascii_lowercase()) => {
                (name, Port::Named(port.to_owned()))
            }
            _ => return Err(bad()),
        },
    };
    let (name, namespace) = match name.split_once('.') {
        None => (name, None),
        Some((name, namespace)) => (name, Some(namespace)),
    };
    // Both become part of a path, so only DNS labels are allowed.
    if !is_label(name, 63) || namespace.is_some_and(|name| !is_label(name, 63)) {
        return Err(bad());
    }
    Ok(Service {
        text: text.to_owned(),
        scheme: scheme.to_owned(),
        name: name.to_owned(),
        namespace: namespace.map(str::to_owned),
        port,
    })
}

/// Whether a text is a DNS label, as names in Kubernetes are.
pub(super) fn is_label(text: &str, most: usize) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=most).contains(&text.len())
        && text.bytes().all(plain)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

impl fmt::Display for Service {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_is_read_and_displayed() {
        for (text, name, namespace, port) in [
            ("kubernetes+http://workers", "workers", None, Port::Only),
            ("kubernetes+grpc://workers.ml:grpc", "workers", Some("ml"), Port::Named("grpc".into())),
            ("kubernetes+https://w-1:8443", "w-1", None, Port::Number(8443)),
        ] {
            let service = Service::read(text).unwrap().unwrap();
            assert_eq!(
                (&*service.name, service.namespace.as_deref(), &service.port),
                (name, namespace, &port)
            );
            assert_eq!(service.to_string(), text);
        }
        let service = Service::read("kubernetes+http://w:http").unwrap().unwrap();
        assert_eq!(service.url("[fd00::1]:8000"), "http://[fd00::1]:8000");
        assert_eq!(Service::read("dns+http://w:1"), None);
        assert_eq!(Service::read("kubernetes+nonsense"), None);
    }

    #[test]
    fn invalid_service_error_shows_expected_format() {
        for bad in
            ["", "W", "w.a.b", "w:0", "w:99999", "w:", "-w", "w/../secrets", "w?x", ".ml", "w.:1", "w:a b"]
        {
            let told = Service::read(&format!("kubernetes+http://{bad}")).unwrap().unwrap_err();
            assert!(told.contains("kubernetes+http://workers.my-namespace:http"), "{bad}: {told}");
        }
    }
}
