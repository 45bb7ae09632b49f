//! Networks: which peers are believed.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network of addresses, such as `10.0.0.0/8` or `::1`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Net {
    address: IpAddr,
    prefix: u32,
}

impl Net {
    /// Whether an address is in it. IPv4 addresses that are written as IPv6 are taken as what they are.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        width(address) == width(self.address) && masked(address, self.prefix) == bits(self.address)
    }
}

impl FromStr for Net {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not an address or a network such as 10.0.0.0/8");
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let width = width(address);
        let prefix = prefix.map_or(Ok(width), |p| p.parse().map_err(|_| wrong()))?;
        if prefix > width {
            return Err(wrong());
        }
        let net = masked(address, prefix);
        if net != bits(address) {
            let net = Self { address: from_bits(net, address), prefix };
            return Err(format!("'{text}' has bits beyond its {prefix}; write {net} for the network"));
        }
        if address != address.to_canonical() {
            return Err(format!("'{text}' is an IPv4 address; write {}", address.to_canonical()));
        }
        Ok(Self { address, prefix })
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

const fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn from_bits(bits: u128, like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4((bits as u32).into()),
        IpAddr::V6(_) => IpAddr::V6(bits.into()),
    }
}

/// The first `prefix` bits of an address, the others zero.
fn masked(address: IpAddr, prefix: u32) -> u128 {
    let rest = width(address) - prefix;
    bits(address).checked_shr(rest).and_then(|b| b.checked_shl(rest)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(net: &str, address: &str) -> bool {
        net.parse::<Net>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn a_network_holds_the_addresses_that_begin_as_it_does() {
        for (net, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("192.168.7.0/24", "192.168.7.255", "192.168.8.0"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("10.0.0.0/8", "::ffff:10.1.2.3", "::ffff:11.1.2.3"),
            ("::1", "::1", "::2"),
            ("fd00::/8", "fd12::1", "fe80::1"),
            ("0.0.0.0/0", "8.8.8.8", "::1"),
            ("::/0", "fe80::1", "8.8.8.8"),
        ] {
            assert!(contains(net, inside), "{net} {inside}");
            assert!(!contains(net, outside), "{net} {outside}");
        }
    }

    #[test]
    fn what_is_not_a_network_is_refused_with_what_would_be_right() {
        for (bad, right) in [
            ("", "10.0.0.0/8"),
            ("localhost", "10.0.0.0/8"),
            ("10.0.0.0/33", "10.0.0.0/8"),
            ("10.0.0.0/-1", "10.0.0.0/8"),
            ("10.0.0.1/8", "write 10.0.0.0/8"),
            ("fd00::1/8", "write fd00::/8"),
            ("::ffff:10.0.0.1", "write 10.0.0.1"),
        ] {
            let error = bad.parse::<Net>().unwrap_err();
            assert!(error.contains(right), "{bad}: {error}");
        }
    }
}
