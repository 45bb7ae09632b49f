//! Keys that clients show, and the digests by which they are known.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

/// What a key made here starts with, so that scanners for leaked secrets can find it.
pub const PREFIX: &str = "esk-";
/// Random bytes of a key made here.
const RANDOM_BYTES: usize = 32;
/// The shortest text that is taken for a key: shorter ones can be guessed from their digest.
pub const MIN_KEY: usize = 20;
/// The longest text that is taken for a key, in bytes.
pub const MAX_KEY: usize = 1024;

/// A key as its holder shows it.
///
/// It can be neither printed nor compared: a comparison that stops at the first difference tells how much was right.
///
/// ```compile_fail
/// let key = elasticserve_gateway::secret::Secret::new("esk-0123456789abcdef0123").unwrap();
/// println!("{key:?}");
/// ```
///
/// ```compile_fail
/// let key = elasticserve_gateway::secret::Secret::new("esk-0123456789abcdef0123").unwrap();
/// println!("{key}");
/// ```
///
/// ```compile_fail
/// let key = elasticserve_gateway::secret::Secret::new("esk-0123456789abcdef0123").unwrap();
/// let other = elasticserve_gateway::secret::Secret::new("esk-0123456789abcdef0123").unwrap();
/// assert!(key == other);
/// ```
///
/// What can be done is to take its digest, and to compare that, which takes the same time whatever the outcome:
///
/// ```
/// use elasticserve_gateway::secret::Secret;
/// let key = Secret::new("esk-0123456789abcdef0123").unwrap();
/// assert!(key.digest().is_of(&key));
/// ```
pub struct Secret(Box<str>);

/// Why a text cannot be a key.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Too few characters.
    #[error("a key needs {MIN_KEY} characters or more; `elasticserve keys new` makes one")]
    TooShort,
    /// Too many characters.
    #[error("a key has {MAX_KEY} characters at most")]
    TooLong,
    /// Characters that a header cannot carry, or that are easily lost.
    #[error("a key has visible ASCII characters only, and no spaces")]
    Characters,
    /// The system gave no random bytes.
    #[error("the system gave no random bytes")]
    NoRandomness,
}

impl Secret {
    /// A key from its text.
    ///
    /// # Errors
    /// [`SecretError`] for what is too short to be safe, too long, or cannot be sent in a header.
    pub fn new(text: &str) -> Result<Self, SecretError> {
        if text.len() < MIN_KEY {
            return Err(SecretError::TooShort);
        }
        if text.len() > MAX_KEY {
            return Err(SecretError::TooLong);
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(SecretError::Characters);
        }
        Ok(Self(text.into()))
    }

    /// A new key of 256 random bits.
    ///
    /// # Errors
    /// [`SecretError::NoRandomness`].
    pub fn generate() -> Result<Self, SecretError> {
        let bytes: [u8; RANDOM_BYTES] = random()?;
        Ok(Self(format!("{PREFIX}{}", hex(&bytes)).into()))
    }

    /// What the key is known by.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest(Sha256::digest(self.0.as_bytes()).into())
    }

    /// The key's text, to be shown to its holder once.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// The SHA-256 of a key. It is written as 64 hexadecimal digits.
#[derive(Copy, Clone)]
pub struct Digest([u8; 32]);

/// A text is not a digest.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// Not 64 hexadecimal digits.
    #[error("must be the 64 hexadecimal digits that `elasticserve keys` prints, and never the key itself")]
    Form,
    /// Of nothing at all.
    #[error("is the digest of an empty text; no key was given to what made it")]
    Empty,
}

impl Digest {
    /// Whether a key has this digest. It takes the same time for every key of the same length.
    #[must_use]
    pub fn is_of(&self, secret: &Secret) -> bool {
        *self == secret.digest()
    }

    /// The digest under a salt: where to look a key up without telling anything by the time that it takes.
    pub(crate) fn salted(&self, salt: &[u8; 32]) -> [u8; 32] {
        Sha256::new().chain_update(salt).chain_update(self.0).finalize().into()
    }
}

impl PartialEq for Digest {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Digest {}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(..)")
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
        let bytes: Vec<u8> =
            digits.ok_or(DigestError::Form)?.chunks(2).map(|p| p.iter().fold(0, |n, d| n << 4 | d)).collect();
        let digest = Self(bytes.try_into().map_err(|_| DigestError::Form)?);
        if text.len() != 64 {
            return Err(DigestError::Form);
        }
        let empty: [u8; 32] = Sha256::digest(b"").into();
        if digest == Self(empty) { Err(DigestError::Empty) } else { Ok(digest) }
    }
}

/// Bytes from the system's source of randomness.
///
/// # Errors
/// [`SecretError::NoRandomness`].
pub(crate) fn random<const N: usize>() -> Result<[u8; N], SecretError> {
    let mut bytes = [0; N];
    let source = rustls::crypto::ring::default_provider().secure_random;
    source.fill(&mut bytes).map_err(|_| SecretError::NoRandomness)?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_the_sha_256_that_other_tools_make() {
        // printf %s esk-0123456789abcdef0123 | sha256sum
        let known = "852684dfb516b6f22e1d054053cbfc3f1a1ba76cec1f57b9dd21c790d902caae";
        let key = Secret::new("esk-0123456789abcdef0123").unwrap();
        assert_eq!(key.digest().to_string(), known);
        assert!(key.digest().to_string().parse::<Digest>().unwrap().is_of(&key));
    }

    #[test]
    fn keys_that_are_made_differ_and_can_be_recognised() {
        let (a, b) = (Secret::generate().unwrap(), Secret::generate().unwrap());
        assert!(a.reveal().starts_with(PREFIX) && a.reveal().len() == PREFIX.len() + 64);
        assert_ne!(a.reveal(), b.reveal());
        assert!(!a.digest().is_of(&b) && a.digest().is_of(&a));
        assert!(Secret::new(a.reveal()).is_ok());
    }

    #[test]
    fn what_cannot_be_a_key_or_a_digest_is_refused_with_the_reason() {
        let refuse = |text: &str| Secret::new(text).err().unwrap();
        assert_eq!(refuse("short"), SecretError::TooShort);
        assert_eq!(refuse(&"x".repeat(MAX_KEY + 1)), SecretError::TooLong);
        assert_eq!(refuse("esk-with a space in it!!"), SecretError::Characters);
        assert_eq!(refuse("esk-with-a-newline-in-it\n"), SecretError::Characters);
        for bad in ["", "esk-0123456789abcdef0123", &"0".repeat(63), &"0".repeat(66), &"g".repeat(64), &"é".repeat(32)]
        {
            assert_eq!(bad.parse::<Digest>().unwrap_err(), DigestError::Form, "{bad}");
        }
        let of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(of_nothing.parse::<Digest>().unwrap_err(), DigestError::Empty);
    }

    #[test]
    fn a_digest_does_not_show_itself_in_logs() {
        assert_eq!(format!("{:?}", Secret::new("esk-0123456789abcdef0123").unwrap().digest()), "Digest(..)");
    }
}
